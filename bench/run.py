#!/usr/bin/python3
# Copyright (C) the nginx-kv-router authors

"""Runs the benchmarks, ours and the peers' in turns, and prints one table.

    run.py [--build DIR] [--runs N] [--trace FILE] [--no-peer] [ROW ...]

ROW is any of main, scale, chat, trace, worst, positional, beside, groups, body,
ingest, latency, polled, cold, rivals, pauses, capacity, snapshot, prefix,
turns, flights, sync, render, reload, tokenize; rivals, pauses, capacity and what of snapshot goes
through no nginx run once.  Positional has no peer, and from groups on no Rust peer has the
rows; those of rivals are beside whole routers, those of
prefix beside Python's and SGLang's own, see prefix.py.  Every program prints
one line of JSON a figure; what is shown is the median of N runs, and the best
peer's figure by ours ("x ours": above 1, ours is faster or smaller), with "!"
where that is below the aim.
DIR/bench.json gets all figures of all runs, and what they were measured on.

The peers are Rust programs, peers/*, built with cargo in DIR/bench-cargo;
where cargo is missing, or cannot build one, the others are measured alone.
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

sys.dont_write_bytecode = True      # nothing is made outside of build/

import script                       # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = ['main', 'scale', 'chat', 'trace', 'worst', 'positional', 'beside',
        'groups', 'body', 'ingest', 'latency', 'polled', 'cold', 'rivals',
        'pauses', 'capacity', 'snapshot', 'prefix', 'turns', 'flights',
        'sync', 'render', 'reload', 'tokenize']
ALONE = ('positional', 'groups', 'body', 'ingest', 'latency', 'polled', 'cold',
         'rivals', 'pauses', 'capacity', 'snapshot', 'prefix', 'turns',
         'flights', 'sync', 'render', 'reload', 'tokenize')  # no peer has them
SCRIPTS = ('latency', 'polled', 'cold', 'rivals',       # of a whole nginx, of
           'render', 'tokenize', 'snapshot', 'sync', 'reload')  # LuaJIT, or Python
FILES = {'tokenize': 'tokenizer'}   # Python has a module of the row's name
OURS = 'ours'

# folder of peers/ -> its program
PEERS = {'dynamo': 'bench-dynamo', 'dynamo-1.2': 'bench-dynamo-1_2'}

# what we aim at: the ratio "best peer / ours", by the row's name
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

# the same of our figure alone: at most
LIMITS = {
    'hash a block, 64 tokens': 10,
    'latency: normalised, routed, p99 rises by': 1,
    'latency: vLLM, routed, p99 rises by': 1,
    'latency: vLLM, in bursts, routed, p99 rises by': 1,
    'render: agent of 480 KB, read and rendered': 2500,
    'rivals: 4096 ids': 35,
    'rivals: 512 ids': 27,
    'rivals: chat of 16 KB by load': 25,
    'rivals: chat of 16 KB by tokenizer': 140,
}

LIMITS['polled: routed, p50 rises by'] = 0.02
LIMITS['nginx: a reload with five models, processor time'] = 50
LIMITS['nginx: reloads with five changed models, the master grows by'] = 8000

# a snapshot of 1 M blocks: altogether, and what holds requests up
LOADED, HELD_UP = 2000, 5

LIMITS['nginx: a snapshot of 1 M blocks'] = LOADED
LIMITS['nginx: a snapshot of 1 M blocks, longest pause'] = HELD_UP

for model in ('Qwen3', 'DeepSeek V3', 'Gemma 3'):
    LIMITS['tokenize: %s, hostile, 1 MB by 0.5 MB, the worst' % model] = 3

for shape in ('radix, chains of 1024', 'radix, chains of 16000',
              'radix, events of 64', 'positional, chains of 1024'):
    LIMITS[shape + ': a snapshot of 1 M blocks'] = LOADED

    for part in ('longest slice', 'swap', 'longest reclaim'):
        LIMITS['%s: %s' % (shape, part)] = HELD_UP

for holders in ('1 worker', '16 workers', '128 workers'):
    for part in ('more, each', 'more, each, no hit'):
        LIMITS['groups, %s: %s' % (holders, part)] = 1000

for looked_up in ('longest of 2,048 entries, hit',
                  'longest of 2,048 entries, miss',
                  'match in 2,048 keys, hit'):
    LIMITS['prefix: ' + looked_up] = 1000

# and at least
LEAST = {
    'ingest: vLLM, 64 blocks an event': 2000,
    'ingest: vLLM, 1 block an event': 300,
}

# column heads; others are shown by their own name
SHORT = {
    'ConcurrentRadixTree': 'CRT',
    'ConcurrentRadixTreeCompressed': 'CRTC',
    'PositionalIndexer': 'Positional',
    'compute_block_hash_for_seq': 'RadixTree',
    'sglang-router': 'sglang',
    'vllm-router': 'vllm',
}

# nothing to compare
ALONE_NAMES = {'an empty event'}
ALONE_UNITS = {'k blocks/s', 'k events/s', 'of 1000', 'pairs'}


def output(*command):
    """What a command says, in one line, or None."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True,
                              stderr=subprocess.DEVNULL,
                              universal_newlines=True)
    except (OSError, subprocess.CalledProcessError):
        return None

    return done.stdout.splitlines()[0] if done.stdout else None


def machine(args):
    """What the figures were measured on."""
    cpu = None

    with open('/proc/cpuinfo', encoding='utf-8') as f:
        for line in f:
            if line.split(':')[0].strip() in ('model name', 'CPU part'):
                cpu = line.split(':', 1)[1].strip()
                break

    return {
        'cpu': cpu,
        'architecture': platform.machine(),
        'cores': os.cpu_count(),
        'page_size': os.sysconf('SC_PAGE_SIZE'),
        'memory': os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE'),
        'kernel': platform.release(),
        'load': os.getloadavg()[0],
        'compiler': output(args.cc, '--version'),
        'flags': args.cflags,
        'rust': output('rustc', '--version'),
    }


def build_peer(build, folder):
    """A peer's program, or None and why not."""
    if shutil.which('cargo') is None:
        return None, 'cargo is missing'

    target = os.path.join(build, 'bench-cargo')
    print('building %s (the first time takes some minutes)' % folder,
          file=sys.stderr)
    done = subprocess.run(
        ['cargo', 'build', '--release', '--quiet', '--manifest-path',
         os.path.join(HERE, 'peers', folder, 'Cargo.toml')],
        env=dict(os.environ, CARGO_TARGET_DIR=target), check=False)

    if done.returncode:
        return None, 'cargo could not build it'

    return os.path.join(target, 'release', PEERS[folder]), None


def scripts(build, rows, trace):
    """The rows as arguments, scripts written; and which were skipped, why."""
    skipped = {}
    out = []

    for row in rows:
        name = {'capacity': 'chat'}.get(row, row)

        if row == 'trace' and not os.path.exists(trace):
            skipped['trace'] = 'there is no %s' % trace
            continue

        if name in ('chat', 'trace'):
            path = os.path.join(build, 'bench', name + '.script')
            made = script.chat() if name == 'chat' else script.trace(trace)
            made.write(path)
            row += '=' + path

        out.append(row)

    return out, skipped


def figures(command):
    """Runs a program; its figures: [(who, name, unit, value)]."""
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False,
                          universal_newlines=True)

    if done.returncode:
        sys.exit('run.py: %s ended with %d' % (command[0], done.returncode))

    rows = [json.loads(line) for line in done.stdout.splitlines()]

    return [(r['who'], r['name'], r['unit'], r['value']) for r in rows]


def add(results, rows):
    """Adds figures to results, a new row behind the one it follows."""
    order = list(results)
    before = None

    for who, name, unit, value in rows:
        if name not in results:
            results[name] = {}
            order.insert(order.index(before) + 1 if before else 0, name)

        results[name].setdefault(who, (unit, []))[1].append(value)
        before = name

    return {name: results[name] for name in order}


def compare(name, row):
    """A row of the table; row: {who: (unit, [values])}."""
    unit = next(iter(row.values()))[0]
    mids = {}

    for who, (_, values) in row.items():
        mids[SHORT.get(who, who)] = statistics.median(values)

    others = [v for w, v in mids.items() if w != OURS]
    ratio = met = None
    aim = AIMS.get(name, LIMITS.get(name, LEAST.get(name)))

    if (OURS in mids and others and name not in ALONE_NAMES
            and unit not in ALONE_UNITS):
        ratio = min(others) / max(mids[OURS], 0.01)

    if name in LIMITS and OURS in mids:
        met = mids[OURS] <= aim
    elif name in LEAST and OURS in mids:
        met = mids[OURS] >= aim
    elif name in AIMS and ratio is not None:
        met = ratio >= aim

    return {'name': name, 'unit': unit, 'medians': mids, 'ratio': ratio,
            'aim': aim, 'aim_is': ('limit' if name in LIMITS else 'least'
                                   if name in LEAST else 'ratio'),
            'met': met,
            'values': {who: values for who, (_, values) in row.items()}}


def number(value, unit, width):
    if value is None:
        return ' ' * width
    if unit == 'pairs':
        return ('{:,}'.format(round(value))).rjust(width)
    return ('%.4g' % value if value < 10000 else '%.0f' % value).rjust(width)


def table(rows):
    """The lines of the table."""
    peers = []

    for row in rows:
        peers += [w for w in row['medians'] if w != OURS and w not in peers]

    lines = ['%-50s %-10s %12s' % ('', '', OURS)
             + ''.join(' %10s' % p for p in peers) + '    x ours    aim']

    for row in rows:
        unit, mids = row['unit'], row['medians']
        line = '%-50s %-10s ' % (row['name'], unit)
        line += number(mids.get(OURS), unit, 12)
        line += ''.join(' ' + number(mids.get(p), unit, 10) for p in peers)

        if row['ratio'] is not None:
            line += ' %9.2f' % row['ratio']

        if row['met'] is not None:
            what = {'limit': '%.4g ' + unit, 'least': ' %.4g',
                    'ratio': '%5.2f'}[row['aim_is']]
            line += '  ' + what % row['aim'] + ('' if row['met'] else ' !')

        lines.append(line.rstrip())

    return lines


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--build', default=os.path.join(HERE, '../build'))
    parser.add_argument('--cc', default='cc')
    parser.add_argument('--cflags', default='')
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--trace', default=os.path.join(
        HERE, '../demo/conversation_trace.jsonl'))
    parser.add_argument('--no-peer', action='store_true')
    parser.add_argument('rows', nargs='*')
    args = parser.parse_args()
    rows = args.rows or ['main']

    if any(r not in ROWS for r in rows) or args.runs < 1:
        parser.error('rows: %s' % ', '.join(ROWS))

    build = os.path.abspath(args.build)
    what = machine(args)
    rows, skipped = scripts(build, rows, args.trace)
    theirs = [r for r in rows if not r.startswith(ALONE)]
    ours = [r for r in rows if not r.startswith(('capacity', 'pauses',
                                                 *SCRIPTS))]
    programs = []

    index = os.path.join(build, 'bench', 'index')
    once = [[index, r] for r in rows
            if r not in ours and (r not in SCRIPTS or r in ('snapshot', 'sync'))]

    if ours:
        programs.append([index] + ours)

    for row in SCRIPTS:
        if row in rows:
            (once if row == 'rivals' else programs).append(
                [os.path.join(HERE, FILES.get(row, row) + '.py'), '--build',
                 build])

    if 'prefix' in rows and not args.no_peer:
        programs.append([os.path.join(HERE, 'prefix.py'), '--engines',
                         os.path.join(build, 'engines')])

    for folder in PEERS if theirs and not args.no_peer else ():
        peer, why = build_peer(build, folder)

        if peer is None:
            skipped[folder] = why
        else:
            programs.append([peer] + theirs)

    for name, why in skipped.items():
        print('%s skipped: %s' % (name, why))

    results = {}

    for i in range(args.runs):
        turns = programs[::-1] if i & 1 else programs

        for command in turns + (once if i == 0 else []):
            print('run %d of %d: %s' % (i + 1, args.runs,
                                        os.path.basename(command[0])),
                  file=sys.stderr)

            results = add(results, figures(command))

    compared = [compare(name, row) for name, row in results.items()]
    print('\n'.join(table(compared)))
    print('\nload of the machine: %.1f at the start, %.1f at the end, on %d '
          'cores' % (what['load'], os.getloadavg()[0], what['cores']))

    out = os.path.join(build, 'bench.json')

    with open(out + '.new', 'w', encoding='utf-8') as f:
        json.dump({
            'date': datetime.datetime.now().isoformat(timespec='seconds'),
            'machine': what,
            'runs': args.runs,
            'skipped': skipped,
            'rows': compared,
        }, f, indent=1)
        f.write('\n')

    os.rename(out + '.new', out)
    print('all figures: %s' % os.path.relpath(out))


if __name__ == '__main__':
    main()
