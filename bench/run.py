#!/usr/bin/python3
# Copyright (C) the nginx-kv-router authors

"""Runs the benchmarks, ours and the peer's in turns, and prints one table.

    run.py [--build DIR] [--runs N] [--no-peer] [main] [scale] [beside]

Every program prints one line of JSON a figure; what is shown is the median of
N runs, and the best peer's figure by ours ("x ours": above 1, ours is faster
or smaller).  DIR/bench.json gets all figures of all runs.

The peer is a Rust program, peers/dynamo, built with cargo in DIR/bench-cargo;
where cargo is missing, or cannot build it, ours is measured alone.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = ['main', 'scale', 'beside']
OURS = 'ours'

# what the issue wants of the ratio "best peer / ours", by the row's name
AIMS = {
    'find, hit': 4,
    'find, half': 4,
    'find, shared prefix': 4,
    'find, 128 branches': 4,
    'find, held by all 128': 4,
    'find, miss': 1,
    'store, 1024 blocks an event': 4,
    'store, 64 blocks an event': 4,
    'store, 1 block an event': 2,
    'store, 1 block an event, in turns': 2,
    'remove, 1024 blocks an event': 2,
    'remove, 64 blocks an event': 2,
    'remove, 1 block an event': 2,
    'remove, 1 block an event, in turns': 2,
    'memory a pair': 1 / 0.45,
}

# column heads; others are shown by their own name
SHORT = {
    'ConcurrentRadixTreeCompressed': 'CRTC',
    'PositionalIndexer': 'Positional',
    'compute_block_hash_for_seq': 'RadixTree',
}

# of one program only: nothing to compare
ALONE = {'an empty event'}


def build_peer(build):
    """The peer's program, or None and why not."""
    if shutil.which('cargo') is None:
        return None, 'cargo is missing'

    target = os.path.join(build, 'bench-cargo')
    env = dict(os.environ, CARGO_TARGET_DIR=target)
    print('building the peer (the first time takes some minutes)',
          file=sys.stderr)
    done = subprocess.run(
        ['cargo', 'build', '--release', '--locked', '--quiet',
         '--manifest-path', os.path.join(HERE, 'peers/dynamo/Cargo.toml')],
        env=env)

    if done.returncode:
        return None, 'cargo could not build it'

    return os.path.join(target, 'release', 'bench-dynamo'), None


def figures(command):
    """Runs a program; its figures: [(who, name, unit, value)]."""
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True,
                          universal_newlines=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]

    return [(r['who'], r['name'], r['unit'], r['value']) for r in rows]


def table(results):
    """The lines of the table; results: {name: {who: (unit, [values])}}."""
    peers = []

    for row in results.values():
        for who in row:
            name = SHORT.get(who, who)
            if who != OURS and name not in peers:
                peers.append(name)

    lines = ['%-44s %-10s %9s' % ('', '', OURS)
             + ''.join(' %10s' % p for p in peers) + '    x ours     aim']

    for name, row in results.items():
        unit = next(iter(row.values()))[0]
        mids = {SHORT.get(w, w): statistics.median(v)
                for w, (_, v) in row.items()}
        line = '%-44s %-10s ' % (name, unit)
        line += '%9.4g' % mids[OURS] if OURS in mids else '%9s' % ''

        for p in peers:
            line += ' %10.4g' % mids[p] if p in mids else ' %10s' % ''

        others = [v for w, v in mids.items() if w != OURS]

        if OURS in mids and others and name not in ALONE:
            ratio = min(others) / max(mids[OURS], 0.01)
            line += ' %9.2f' % ratio

            if name in AIMS:
                line += '  %5.2f%s' % (
                    AIMS[name], '' if ratio >= AIMS[name] else ' !')

        lines.append(line.rstrip())

    return lines


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--build', default=os.path.join(HERE, '../build'))
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--no-peer', action='store_true')
    parser.add_argument('rows', nargs='*')
    args = parser.parse_args()
    rows = args.rows or ['main']

    if any(r not in ROWS for r in rows) or args.runs < 1:
        parser.error('rows: %s' % ', '.join(ROWS))

    build = os.path.abspath(args.build)
    programs = [[os.path.join(build, 'bench', 'index')] + rows]
    peer, why = (None, 'not asked for') if args.no_peer else build_peer(build)
    theirs = [r for r in rows if r != 'beside']

    if peer is None:
        print('peer skipped: %s' % why)
    elif theirs:
        programs.append([peer] + theirs)

    results = {}

    for i in range(args.runs):
        for command in programs[::-1] if i & 1 else programs:
            print('run %d of %d: %s' % (i + 1, args.runs,
                                        os.path.basename(command[0])),
                  file=sys.stderr)

            for who, name, unit, value in figures(command):
                row = results.setdefault(name, {})
                row.setdefault(who, (unit, []))[1].append(value)

    print('\n'.join(table(results)))

    out = os.path.join(build, 'bench.json')

    with open(out + '.new', 'w') as f:
        json.dump({
            'date': datetime.datetime.now().isoformat(timespec='seconds'),
            'machine': platform.machine(),
            'cores': os.cpu_count(),
            'runs': args.runs,
            'peer': peer is not None,
            'rows': [{'name': name, 'who': who, 'unit': unit,
                      'median': statistics.median(values), 'values': values}
                     for name, row in results.items()
                     for who, (unit, values) in row.items()],
        }, f, indent=1)
        f.write('\n')

    os.rename(out + '.new', out)
    print('\nall figures: %s' % os.path.relpath(out))


if __name__ == '__main__':
    main()
