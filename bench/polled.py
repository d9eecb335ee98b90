#!/usr/bin/python3
# Copyright (C) the nginx-kv-router authors

"""How much longer requests take while the status is read.

    polled.py [--build DIR] [--seconds N]

What latency.py starts, without events during the measurement, but with an
index of half a million blocks.  For two seconds the status page's JSON, all
parts of it, and the metrics are read once a second each, on a connection that
stays open; then for two seconds they are not, and so on.  The client is that
of latency.py.

One run prints one line of JSON a figure, as run.py reads them.
"""

import argparse
import http.client
import multiprocessing
import os
import random
import socket
import statistics
import sys
import time

sys.dont_write_bytecode = True      # nothing is made outside of build/

import latency                                                  # noqa: E402
from latency import (BLOCKS, BLOCK_SIZE, HERE, LUA, PERCENTILES,  # noqa: E402
                     PLACES, PROMPT_TOKENS, WORKERS, figure, percentile)

FILL = 8192                         # chains, beside those of the prompts
WINDOW_SECONDS = 2
EACH_SECONDS = 1
ASKED = ('part=status', 'part=history', 'part=decisions', 'part=prefixes',
         'part=tree', 'format=prometheus')


def chain():
    """An event of blocks that nobody asks for."""
    return ['s', 0, 0, None, os.urandom(8 * BLOCKS), os.urandom(8 * BLOCKS)]


def fill(stage, publishers, prompts):
    """Gives the workers the prompts, and many other blocks."""
    rng = random.Random(2)
    batches = []

    for i, tokens in enumerate(prompts):
        handles = [rng.getrandbits(64)
                   for _ in range(PROMPT_TOKENS // BLOCK_SIZE)]
        batches.append((publishers[i % WORKERS],
                        latency.stored('normalised', None, handles, tokens)))

    batches += [(publishers[i % WORKERS], chain()) for i in range(FILL)]

    with socket.create_connection(('127.0.0.1', stage.redis)) as redis:
        for publisher, event in batches:
            redis.sendall(publisher.command(publisher.batch([event])))
        latency.until('the index',
                      lambda: stage.messages() == len(batches))


def poll(port, going, times):
    """Reads all of the status once a second while it shall."""
    connection = http.client.HTTPConnection('127.0.0.1', port)

    while True:
        time.sleep(EACH_SECONDS / 4)

        while going.value:
            start = time.monotonic()
            for asked in ASKED:
                began = time.perf_counter()
                connection.request('GET', '/status?' + asked)
                answer = connection.getresponse()
                size = len(answer.read())
                if answer.status != 200:
                    sys.exit('bench: %s: %d' % (asked, answer.status))
                times.put((asked, time.perf_counter() - began, size))
            time.sleep(max(0, start + EACH_SECONDS - time.monotonic()))


def spent(pid):
    """The processor time of a process, in seconds."""
    with open('/proc/%d/schedstat' % pid, encoding='utf-8') as f:
        return int(f.read().split()[0]) / 1e9


def measure(args):
    """Times by place and processor time, not polled and polled; the polls."""
    prompts, bodies = latency.make_prompts(random.Random(1))

    with latency.Stage(args) as stage:
        epoch = int(time.time() * 1000)
        fill(stage, [latency.Publisher('normalised', name, epoch)
                     for name in stage.names], prompts)

        going = multiprocessing.Value('b', 0)
        polls = multiprocessing.Queue()
        child = multiprocessing.Process(target=poll, daemon=True, args=(
            stage.port, going, polls))
        child.start()

        clients = {
            'routed': latency.Client(stage.port, '/routed/v1/completions',
                                     bodies),
            'plain': latency.Client(stage.port, '/plain', bodies),
            'past nginx': latency.Client(stage.engine, '/', bodies),
        }
        turns = [clients[place] for place in PLACES]
        times = [{place: [] for place in clients} for _ in range(2)]
        used = [[], []]
        latency.ask_all(turns, latency.WARM_SECONDS)

        for _ in range(round(args.seconds / WINDOW_SECONDS)):
            for going.value in (0, 1):
                for place, client in clients.items():
                    client.times = times[going.value][place]
                before = spent(stage.nginx())
                latency.ask_all(turns, WINDOW_SECONDS)
                used[going.value].append(spent(stage.nginx()) - before)

        going.value = 0
        time.sleep(EACH_SECONDS)
        read = []
        while not polls.empty():
            read.append(polls.get())
        child.terminate()
        child.join()

        assert len(read) >= len(ASKED) * args.seconds / 2, len(read)

        return times, used, read


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--build', default=os.path.join(HERE, '../build'))
    parser.add_argument('--seconds', type=float, default=12)
    parser.set_defaults(lua=LUA, policy='kv_cost', batch=None)
    args = parser.parse_args()

    latency.hurry()

    times, used, read = measure(args)

    for place in times[0]:
        for percent, text in PERCENTILES:
            values = [percentile(of[place], percent) for of in times]
            for value, when in zip(values, (' without', '')):
                figure('polled: %s, %s%s' % (place, text, when), 'ms', value)
            if text == 'p50':
                figure('polled: %s, p50 rises by' % place, 'ms',
                       values[1] - values[0])

    figure('polled: processor time, polled', 'ms/s',
           1000 * (statistics.median(used[1]) - statistics.median(used[0]))
           / WINDOW_SECONDS)

    for asked in ASKED:
        of = [one for one in read if one[0] == asked]
        figure('polled: %s' % asked, 'ms',
               1000 * statistics.median(one[1] for one in of))
        figure('polled: %s, size' % asked, 'KB',
               statistics.median(one[2] for one in of) / 1000)


if __name__ == '__main__':
    main()
