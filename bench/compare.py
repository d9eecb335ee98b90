#!/usr/bin/python3
# Copyright (C) the nginx-kv-router authors

"""This tree beside an earlier commit: both programs in turns, pair by pair.

    compare.py TREE [--runs N] [ROW ...]

TREE is another work tree of the project, built there: `git worktree add TREE
COMMIT; make -C TREE module lib; make -C TREE/bench programs`.  This one has to
be built likewise.  ROW is any of main, worst, ingest, latency, cold (default:
main ingest latency).

A line a figure: the medians of both, and the median of the ratios of the pairs
of runs.  A ratio above 1 says that this tree is slower, or takes more memory.
With "!" where that is more than LIMIT.  The status is 1 when there is one.
"""

import argparse
import os
import statistics
import sys

from run import HERE, figures, number

ROWS = ('main', 'worst', 'ingest', 'latency', 'cold')
LIMIT = 1.03


def commands(tree, rows):
    """What is run of a tree."""
    build = os.path.join(tree, 'build')
    found = []
    index = [row for row in rows if row not in ('latency', 'cold')]
    if index:
        found.append([os.path.join(build, 'bench', 'index'), *index])
    if 'latency' in rows:
        found.append([os.path.join(tree, 'bench', 'latency.py'), '--build',
                      build])
    if 'cold' in rows:      # earlier trees have no such program
        found.append([os.path.join(HERE, 'cold.py'), '--build', build,
                      '--lua', os.path.join(tree, 'lua')])
    return found


def run(tree, rows):
    """The figures of one run of a tree: {name: (unit, value)}."""
    return {name: (unit, value) for command in commands(tree, rows)
            for _, name, unit, value in figures(command)}


def slower(unit, before, now):
    """How many times slower, or larger, now is than before."""
    if not before or not now:
        return None
    return before / now if unit.endswith('/s') else now / before


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('tree')
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('rows', nargs='*')
    args = parser.parse_intermixed_args()
    rows = args.rows or ['main', 'ingest', 'latency']
    if any(row not in ROWS for row in rows) or args.runs < 1:
        parser.error('rows: %s' % ', '.join(ROWS))

    trees = (os.path.abspath(args.tree), os.path.dirname(HERE))
    pairs = []
    for i in range(args.runs):
        print('pair %d of %d, load %.1f' % (i + 1, args.runs,
                                            os.getloadavg()[0]),
              file=sys.stderr)
        turn = trees[::-1] if i & 1 else trees
        got = {tree: run(tree, rows) for tree in turn}
        pairs.append((got[trees[0]], got[trees[1]]))

    print('%-50s %-10s %10s %10s %7s' % ('', '', 'before', 'now', 'ratio'))
    over = False
    for name, (unit, _) in pairs[0][1].items():
        both = [(before[name][1], now[name][1]) for before, now in pairs
                if name in before and name in now]
        if not both:
            continue
        ratios = [r for r in (slower(unit, *pair) for pair in both)
                  if r is not None]
        ratio = statistics.median(ratios) if ratios else None
        bad = ratio is not None and ratio > LIMIT
        over = over or bad
        print('%-50s %-10s %s %s %7s%s' % (
            name, unit, number(statistics.median(b for b, _ in both), unit, 10),
            number(statistics.median(n for _, n in both), unit, 10),
            '' if ratio is None else '%.3f' % ratio, ' !' if bad else ''))
    return 1 if over else 0


if __name__ == '__main__':
    sys.exit(main())
