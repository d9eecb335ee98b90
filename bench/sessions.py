#!/usr/bin/python3
# Copyright (C) the nginx-kv-router authors

"""What memory of many long chats takes: ours, and sglang-router.

    sessions.py [--build DIR] [--lua DIR] [--model DIR] [--sessions N]

N chats (1,000) of 470 KB, some 100,000 tokens each, are sent once to each
router.  Of ours, the memory is that of its processes, of the turn cache's slots
in use, and of the index with the blocks of all chats, in blocks of 16.
sglang-router is that of rivals.py: it keeps the texts in a tree.  The figures
are resident memory without what is shared, before and after, in MB.
"""

import argparse
import http.client
import json
import os
import random
import socket
import sys
import time

sys.dont_write_bytecode = True      # nothing is made outside of build/

from latency import LUA, Publisher, stored, until              # noqa: E402
from rivals import (BLOCK_SIZE, HERE, LONG, Rivals, launch,     # noqa: E402
                    sources)

TOKENS = 100000
MB = 1 << 20
SLOT = 512                      # bytes, of the turn cache
PEER = 'sglang-router'
EVICTION_SECONDS = 70           # it evicts once a minute


class Sessions(Rivals):
    """With a turn cache that has room for all chats."""

    def __init__(self, args):
        super().__init__(args, [])

    def values(self, args, zone, replay):
        found = super().values(args, '1024m', replay)
        found['model'] = '%s turns=128m' % found['model']
        return found


def private(pid):
    """MB of a process and its children that no other one shares."""
    total = 0
    with open('/proc/%d/status' % pid, encoding='utf-8') as f:
        for line in f:
            if line.startswith('RssAnon:'):
                total += int(line.split()[1]) / 1024
    for task in os.listdir('/proc/%d/task' % pid):
        path = '/proc/%d/task/%s/children' % (pid, task)
        with open(path, encoding='utf-8') as f:
            total += sum(private(int(child)) for child in f.read().split())
    return total


def send(port, text, number):
    """Sends the chats; how many were answered by 200."""
    client = http.client.HTTPConnection('127.0.0.1', port)
    good = 0
    for i in range(number):
        at = i * 7919 % (len(text) - LONG)
        client.request('POST', '/v1/chat/completions', json.dumps({
            'model': 'bench', 'messages': [
                {'role': 'system', 'content': 'Session %d.' % i},
                {'role': 'user', 'content': text[at:at + LONG]}]}),
            {'Content-Type': 'application/json'})
        answer = client.getresponse()
        answer.read()
        good += answer.status == 200
    return good


def publish(stage, rng, number):
    """Has the blocks of so many chats in the index."""
    publishers = [Publisher('normalised', name, int(time.time() * 1000))
                  for name in stage.names]
    some = [rng.getrandbits(17) for _ in range(10 * TOKENS)]
    with socket.create_connection(('127.0.0.1', stage.redis)) as redis:
        for i in range(number):
            at = i * 7919 % (len(some) - TOKENS)
            ids = [i] * BLOCK_SIZE + some[at:at + TOKENS - BLOCK_SIZE]
            handles = [rng.getrandbits(64)
                       for _ in range(TOKENS // BLOCK_SIZE)]
            publisher = publishers[i % len(publishers)]
            redis.sendall(publisher.command(publisher.batch(
                [stored('normalised', None, handles, ids)])))
            if i % 16 == 15 or i == number - 1:
                until('events', lambda n=i + 1: stage.messages() == n)


def say(what, value):
    """One figure."""
    print('%s: %.1f MB' % (what, value), flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--build', default=os.path.join(HERE, '../build'))
    parser.add_argument('--lua', default=LUA)
    parser.add_argument('--model', default=os.path.join(
        HERE, '../t/vectors/model'))
    parser.add_argument('--sessions', type=int, default=1000)
    parser.set_defaults(batch=None, policy='kv_cost', turns=False)
    args = parser.parse_args()

    rng = random.Random(1)
    text = sources(rng)['prose'] * 3

    with Sessions(args) as stage:
        nginx = stage.nginx()
        before, index = private(nginx), stage.status()['memory']['used_bytes']
        good = send(stage.local, text, args.sessions)
        cache = stage.status()['turn_cache']
        print('ours: %d of %d chats were answered, %d kept, %d evicted, %d '
              'not encoded' % (good, args.sessions, cache['kept'],
                               cache['evicted'], args.sessions - stage.status(
                               )['local_model']['texts']['done']))
        say('ours, process before', before)
        say('ours, process grew by', private(nginx) - before)
        say('ours, turn cache', cache['used'] * SLOT / MB)
        publish(stage, rng, args.sessions)
        say('ours, index', (stage.status()['memory']['used_bytes'] - index)
            / MB)

        started = launch(stage, args.build, PEER,
                         min(os.sched_getaffinity(0)))
        if started:
            pid, port = started
            before = private(pid)
            good = send(port, text, args.sessions)
            print('%s: %d of %d chats were answered' % (PEER, good,
                                                       args.sessions))
            say(PEER + ', process before', before)
            say(PEER + ', process grew by', private(pid) - before)
            time.sleep(EVICTION_SECONDS)
            say(PEER + ', grew by, after its eviction', private(pid) - before)


if __name__ == '__main__':
    main()
