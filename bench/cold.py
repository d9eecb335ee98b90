#!/usr/bin/python3
# Copyright (C) the nginx-kv-router authors

"""What a request costs when no cache of the processor has anything of it.

    cold.py [--build DIR] [--lua DIR] [--seconds N] [--policy NAME]

A real nginx with one worker process, a real Redis, an engine that answers at
once (another nginx), and a client that sends 100 requests a second to three
places in turns: routed, through the same nginx without routing (plain), and
past it.  All of them run on one core, and before each request the client reads
64 MB of other memory.  So each request finds the caches as it would after
10 ms of other work, on a quiet machine, too.

The CPU time is the one that the scheduler counts for nginx's worker process,
in windows in which only one place is asked.

One run prints one line of JSON a figure, as run.py reads them.
"""

import argparse
import os
import random
import socket
import statistics
import sys
import time

sys.dont_write_bytecode = True      # nothing is made outside of build/

from latency import (BLOCK_SIZE, Client, HERE, LUA, Publisher, Stage, WORKERS,
                     figure, hurry, stored, until)              # noqa: E402

REQUESTS = 100                  # a second
WINDOW = 50                     # requests to one place, then the next
WARM = 3000                     # the code that LuaJIT compiles is compiled
OTHER = 64 << 20                # bytes read before each request
PROMPTS = 32
SIZES = (4096, 64)              # token ids
PLACES = ('routed', 'plain', 'past nginx')


def spent(pid):
    """Microseconds of CPU time that a process had."""
    with open('/proc/%d/schedstat' % pid, encoding='utf-8') as f:
        return int(f.read().split()[0]) / 1000


def publish(stage, rng):
    """Has each prompt cached at one worker; returns the bodies by size."""
    publishers = [Publisher('normalised', name, int(time.time() * 1000))
                  for name in stage.names]
    bodies = {}

    with socket.create_connection(('127.0.0.1', stage.redis)) as redis:
        for size in SIZES:
            bodies[size] = []
            for i in range(PROMPTS):
                tokens = [rng.randrange(1 << 17) for _ in range(size)]
                handles = [rng.getrandbits(64)
                           for _ in range(size // BLOCK_SIZE)]
                publisher = publishers[i % WORKERS]
                redis.sendall(publisher.command(publisher.batch(
                    [stored('normalised', None, handles, tokens)])))
                bodies[size].append(
                    ('{"prompt":%s}' % tokens).replace(' ', '').encode())
        until('prompts',
              lambda: stage.messages() == PROMPTS * len(SIZES))

    return bodies


def ask(client, first, other):
    """A window of requests, each in caches full of other things."""
    due = time.perf_counter()

    for number in range(first, first + WINDOW):
        due += 1 / REQUESTS
        other.find(b'\1')
        time.sleep(max(0, due - time.perf_counter()))
        start = time.perf_counter()
        client.ask(number)
        client.times.append(time.perf_counter() - start)


def measure(stage, bodies, seconds):
    """Medians by place: seconds a request took, microseconds of CPU time."""
    ports = {'past nginx': (stage.engine, '/'),
             'plain': (stage.port, '/plain'),
             'routed': (stage.port, '/routed/v1/completions')}
    clients = {place: Client(port, path, bodies)
               for place, (port, path) in ports.items()}
    nginx = stage.nginx()
    other = bytes(bytearray(OTHER))
    cpu = {place: [] for place in PLACES}

    for client in clients.values():
        for number in range(WARM):
            client.ask(number)
        client.times = []

    rounds = max(3, round(seconds * REQUESTS / WINDOW / len(PLACES)))

    for number in range(rounds):
        for place in PLACES:
            before = spent(nginx)
            ask(clients[place], number * WINDOW, other)
            cpu[place].append((spent(nginx) - before) / WINDOW)

    return ({place: statistics.median(clients[place].times)
             for place in PLACES},
            {place: statistics.median(cpu[place]) for place in PLACES})


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--build', default=os.path.join(HERE, '../build'))
    parser.add_argument('--lua', default=LUA)
    parser.add_argument('--seconds', type=float, default=12)
    parser.add_argument('--policy', default='kv_cost')
    parser.set_defaults(batch=None)
    args = parser.parse_args()

    hurry()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    with Stage(args) as stage:
        for size, bodies in publish(stage, random.Random(1)).items():
            took, cpu = measure(stage, bodies, args.seconds)
            name = 'cold: %d ids, ' % size

            for place in PLACES:
                figure(name + place + ', p50', 'us', 1e6 * took[place])

            for place in PLACES[:2]:
                figure(name + place + ', CPU', 'us', cpu[place])

            figure(name + 'routed beyond plain, p50', 'us',
                   1e6 * (took['routed'] - took['plain']))
            figure(name + 'routed beyond plain, CPU', 'us',
                   cpu['routed'] - cpu['plain'])


if __name__ == '__main__':
    main()
