#!/usr/bin/python3
# Copyright (C) the nginx-kv-router authors

"""How long nginx loads a snapshot of 1 M blocks, and what requests notice.

    snapshot.py [--build DIR] [--rounds N]

What latency.py starts: a real nginx with one worker process, a real Redis with
the parts as kv-relay writes them, an engine, and a client that sends requests
at a fixed rate, which nginx answers itself and routes in turns.  A worker says
that its stream is far on, as after a gap whose log was trimmed: nginx asks for
its snapshot, builds it aside and swaps it in, and the worker is EXACT.  The
first snapshot meets a zone that was never written to, the second one a view as
large that goes.

One run prints one line of JSON a figure, as run.py reads them: of all rounds
the longest.
"""

import argparse
import json
import multiprocessing
import os
import random
import socket
import sys
import time

import msgpack

sys.dont_write_bytecode = True      # nothing is made outside of build/

from latency import (Client, HERE, LUA, Stage, ask_all, figure, hurry, make_prompts,
                     until)                                     # noqa: E402

CHAIN = 1024                    # blocks
CHAINS = 1024                   # of these, 1 M blocks
PART = 15                       # chains of a part, less than 256 KiB
ZONE = '512m'
SECONDS = 2.5                   # that the client asks, without and with
QUIET = 0.25                    # of these, before it begins
POLL = 0.02


class Redis:
    """A connection: commands, and whether they were taken."""

    def __init__(self, port):
        self.connection = socket.create_connection(('127.0.0.1', port))

    def __call__(self, *command):
        parts = [part if isinstance(part, bytes) else str(part).encode()
                 for part in command]
        self.connection.sendall(b'*%d\r\n' % len(parts) + b''.join(
            b'$%d\r\n%s\r\n' % (len(part), part) for part in parts))
        answer = self.connection.recv(1 << 16)
        assert answer[:1] in b'+:', answer


def write(redis, worker, epoch, seq, rng):
    """A snapshot of new blocks, and its pointer, last."""
    at = f'kv-snap:{{{worker}}}'
    parts = 0

    for first in range(0, CHAINS, PART):
        redis('SET', f'{at}:{epoch}-{seq}:{parts}', msgpack.packb(
            [['s', 0, 0, None, rng.randbytes(8 * CHAIN),
              rng.randbytes(8 * CHAIN)]
             for _ in range(first, min(first + PART, CHAINS))]))
        parts += 1

    redis('HSET', at, 'version', 1, 'epoch', epoch, 'seq', seq, 'complete', 1,
          'parts', parts, 'blocks', CHAIN * CHAINS, 'block_size', 16,
          'eagle', 0)


def load(stage, worker, epoch, seq, took):
    """Has the snapshot loaded after a while; took: seconds until EXACT."""
    time.sleep(QUIET)
    start = time.monotonic()
    Redis(stage.redis)('PUBLISH', 'kv-events:' + worker, msgpack.packb(
        ['kvr1', worker, epoch, seq, True, 0, None]))

    def loaded():
        seen = next(w for w in stage.status()['workers']
                    if w['worker_id'] == worker)
        return seen['confidence'] == 'EXACT' and seen['seq'] == seq

    until('the snapshot', loaded, POLL)
    took.value = time.monotonic() - start


def ask(clients, times, seconds):
    """Adds the times of so many seconds of requests to those of a place."""
    for client, place in zip(clients, times):
        client.times = place

    ask_all(clients, seconds)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--build', default=os.path.join(HERE, '../build'))
    parser.add_argument('--rounds', type=int, default=2)
    parser.set_defaults(batch=None, lua=LUA, policy='kv_cost')
    args = parser.parse_args()

    hurry()

    rng = random.Random(1)
    ready = []
    calm, busy = ([[], []] for _ in range(2))

    with Stage(args, ZONE, 'on') as stage:
        _, bodies = make_prompts(rng)
        clients = [Client(stage.port, '/here', [b'{}']),
                   Client(stage.port, '/routed/v1/completions', bodies)]
        redis = Redis(stage.redis)
        epoch = int(time.time() * 1000)
        worker = stage.names[0]
        hurry(2)                    # who waits is not to wait for a processor

        for number in range(1, args.rounds + 1):
            write(redis, worker, epoch, 1000 * number, rng)
            ask(clients, calm, SECONDS)

            took = multiprocessing.Value('d', 0)
            child = multiprocessing.Process(target=load, args=(
                stage, worker, epoch, 1000 * number, took))
            child.start()

            ask(clients, busy, SECONDS)

            while child.is_alive():
                ask(clients, busy, POLL)

            child.join()

            if child.exitcode:
                sys.exit('bench: the snapshot was not loaded')

            ready.append(took.value)

        worker = stage.status()['workers'][0]
        assert worker['held'][0]['blocks'] == CHAIN * CHAINS, worker
        assert worker['counters']['snapshots'] == args.rounds, worker

    name = 'nginx: a snapshot of 1 M blocks'
    figure(name, 'ms', 1000 * max(ready))

    for what, when in (('', busy), (' without', calm)):
        for place, times in zip(('pause', 'request routed'), when):
            figure('%s, longest %s%s' % (name, place, what), 'ms',
                   1000 * max(times))


if __name__ == '__main__':
    main()
