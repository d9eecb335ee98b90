"""Configurations that have all features in pairs.

A configuration is a row: a level of each factor of the zone and of nginx, and
three routers of that zone, each with a policy and a tokenizer.  Some row has
each pair of levels: of two factors, of a factor and a policy or a tokenizer,
and of a policy and a tokenizer of the same router.

The rows are drawn, always the same ones: each next row is, of some that are
drawn, the one with the most pairs that no row has yet.
"""

import itertools
import random

OFF, ON = "off", "on"

FACTORS = {
    "events": ("none", "redis", "api"),     # none: workers are estimated
    "model": ("none", "vllm", "sglang"),
    "frequency": (OFF, ON),
    "index": ("radix", "positional"),
    "eagle": (OFF, ON),
    "predict": (OFF, ON),
    "shards": ("1", "4"),
    "ttl": (OFF, ON),
    "turns": (OFF, ON),
    "prefix": (OFF, ON),
    "processes": ("1", "2"),
    "abort": (OFF, ON)}                     # lua_check_client_abort

# of three protocols is the policy that asks two workers

POLICIES = ("kv_cost", "agent", "disaggregated-vllm", "disaggregated-sglang",
            "disaggregated-sidecar", "affinity_gate", "cache_aware",
            "least_loaded", "lmetric", "p2c", "prefix_hash", "random",
            "round_robin", "session", "weighted")
TOKENIZERS = ("none", "remote", "auto", "local")
ROUTERS = 3
DRAWN = 60                      # rows of which the best is taken
SEED = 1

# The first rows, of which the rest is drawn: what went wrong before.  Counts
# of texts at workers that are estimated; sessions with ids and with none; two
# workers for a request, one of which fails.

GIVEN = (
    {"frequency": ON, "events": "none", "model": "none", "processes": "2",
     "abort": OFF, "routers": [("kv_cost", "none"), ("kv_cost", "remote"),
                               ("prefix_hash", "auto")]},
    {"events": "api", "model": "sglang", "abort": ON,
     "routers": [("agent", "none"), ("agent", "local"),
                 ("session", "remote")]},
    {"events": "redis", "model": "vllm", "processes": "2", "abort": ON,
     "routers": [("disaggregated-vllm", "remote"),
                 ("disaggregated-sglang", "none"),
                 ("disaggregated-sidecar", "local")]})


def allowed(row):
    """Whether nginx starts with it: the zone's model makes local ids."""
    return (row["model"] != "none"
            or all(tokenizer != "local" for _, tokenizer in row["routers"]))


def pairs_of(row):
    """All pairs of a row, each ((what, level), (what, level))."""
    zone = [(name, row[name]) for name in FACTORS]
    found = set(itertools.combinations(zone, 2))
    for policy, tokenizer in row["routers"]:
        ours = (("policy", policy), ("tokenizer", tokenizer))
        found.add(ours)
        found.update(itertools.product(zone, ours))
    return found


def all_pairs():
    """The pairs that some row has to have."""
    levels = {**FACTORS, "policy": POLICIES, "tokenizer": TOKENIZERS}
    found = {((one, a), (other, b))
             for one, other in itertools.combinations(levels, 2)
             for a in levels[one] for b in levels[other]}
    return found - {(("model", "none"), ("tokenizer", "local"))}


def rows():
    """The rows: the given ones first."""
    rng = random.Random(SEED)
    missing = all_pairs()
    found = []
    while missing:
        given = GIVEN[len(found)] if len(found) < len(GIVEN) else {}
        best = max((_drawn(rng, missing, given) for _ in range(DRAWN)),
                   key=lambda row: len(pairs_of(row) & missing))
        assert given or pairs_of(best) & missing
        missing -= pairs_of(best)
        found.append(best)
    return found


def _drawn(rng, missing, given):
    """A row that has what is given, and some pairs that are missing."""
    row = {name: rng.choice(levels) for name, levels in FACTORS.items()}
    lacking = sorted(pair for pair in missing if pair[0][0] == "policy")
    routers = [(pair[0][1], pair[1][1]) for pair in rng.sample(
        lacking, min(ROUTERS, len(lacking)))]
    while len(routers) < ROUTERS:
        routers.append((rng.choice(POLICIES), rng.choice(TOKENIZERS)))
    row["routers"] = routers
    row.update(given)
    if not allowed(row):
        row["model"] = rng.choice(FACTORS["model"][1:])
    free = [name for name in FACTORS if name not in given]
    rng.shuffle(free)
    for name in free:           # the level that adds the most pairs
        levels = rng.sample(FACTORS[name], len(FACTORS[name]))
        row[name] = max((level for level in levels
                         if allowed({**row, name: level})),
                        key=lambda level, name=name: len(
                            pairs_of({**row, name: level}) & missing))
    return row


def text_of(row):
    """A row in words: what is switched on, then its routers."""
    words = [name if level == ON else f"{name}={level}"
             for name, level in ((name, row[name]) for name in FACTORS)
             if level not in (OFF, "none") or name == "events"]
    return (", ".join(words) + "; "
            + ", ".join(f"{policy}/{tokenizer}"
                        for policy, tokenizer in row["routers"]))


def table(found):
    """Lines of Markdown: the configurations, then which of them have each
    pair of a policy with a level of another factor."""
    yield "| | " + " | ".join([*FACTORS, "policy/tokenizer"]) + " |"
    yield "|" + "--|" * (len(FACTORS) + 2)
    for number, row in enumerate(found, 1):
        yield f"| {number} | " + " | ".join(
            [row[name] for name in FACTORS]
            + ["<br>".join("/".join(router) for router in row["routers"])]
        ) + " |"
    numbers = {}
    for number, row in enumerate(found, 1):
        for pair in pairs_of(row):
            numbers.setdefault(pair, []).append(str(number))
    yield ""
    yield "| pair | configurations |"
    yield "|---|---|"
    for pair in sorted(all_pairs()):
        (one, a), (other, b) = pair
        yield (f"| {one}={a}, {other}={b} | "
               + " ".join(numbers[pair]) + " |")
