"""Steps of an engine, as vllm_steps.py logs them, and what a step takes."""

import json

# what kv-simulate takes the time of a step for, and how much of each it has
PARTS = {
    "base": lambda step: 1,
    "prefill": lambda step: sum(n for n, _ in step["prefill"]),
    "prefill_context": lambda step: sum(
        n * before for n, before in step["prefill"]),
    "decode": lambda step: len(step["decode"]),
    "decode_context": lambda step: sum(step["decode"])}
OFF = 0.5                       # of what a step should take
ROUNDS = 20                     # after which the same steps are left out


def read(path):
    """The steps of a file."""
    return [json.loads(line) for line in
            path.read_text(encoding="ascii").splitlines()]


def taken(step):
    """Seconds that a step took."""
    return step["end"] - step["at"]


def cost(parts, step):
    """Seconds that a step takes, by what each of PARTS costs."""
    return sum(parts[name] * part(step) for name, part in PARTS.items())


def fitted(steps):
    """What each of PARTS costs, in seconds; the share of the steps that this
    comes from, and R2 among them.  Steps that are OFF are left out, for
    another process had the processor meanwhile."""
    kept = steps
    for _ in range(ROUNDS):
        parts = least_squares(kept)
        kept = [step for step in steps if abs(taken(step) - cost(parts, step))
                < OFF * abs(cost(parts, step))]
    mean = sum(map(taken, kept)) / len(kept)
    left = sum((taken(step) - cost(parts, step)) ** 2 for step in kept)
    return parts | {
        "kept": len(kept) / len(steps),
        "R2": 1 - left / sum((taken(step) - mean) ** 2 for step in kept)}


def least_squares(steps, names=tuple(PARTS)):
    """What each of PARTS costs, by least squares; a part that would cost less
    than nothing costs nothing."""
    rows = [[PARTS[name](step) for name in names] for step in steps]
    # columns of one size, so that numbers of different sizes don't drown
    sizes = [max(map(abs, column)) or 1 for column in zip(*rows)]
    rows = [[value / size for value, size in zip(row, sizes)] for row in rows]
    found = dict(zip(names, solved([
        [sum(row[i] * row[j] for row in rows) for j in range(len(sizes))]
        + [sum(row[i] * taken(step) for row, step in zip(rows, steps))]
        for i in range(len(sizes))])))
    least = min(found, key=found.get)
    if found[least] < 0:
        return least_squares(steps, [name for name in names if name != least])
    return dict.fromkeys(PARTS, 0) | {
        name: found[name] / size for name, size in zip(names, sizes)}


def solved(rows):
    """The solution of linear equations, by elimination; a row is an equation,
    its last number the right side."""
    n = len(rows)
    for i in range(n):
        pivot = max(range(i, n), key=lambda at: abs(rows[at][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for j in range(n):
            if j != i:
                times = rows[j][i] / rows[i][i]
                rows[j] = [b - times * a for a, b in zip(rows[i], rows[j])]
    return [row[n] / row[i] for i, row in enumerate(rows)]
