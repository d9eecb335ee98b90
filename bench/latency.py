#!/usr/bin/python3
# Copyright (C) the nginx-kv-router authors

"""How much longer requests take while KV events come in.

    latency.py [--build DIR] [--seconds N] [--rate BLOCKS]

A real nginx with one worker process, which routes requests and applies the
events; a real Redis; an engine that answers at once (another nginx); a
publisher of RATE blocks/s that is on and off in turns, a second each; and a
client that sends prompts of 4096 token ids at a fixed rate, to three places in
turns: routed, through the same nginx without routing, and past it, which shows
what the machine itself does.

One run prints one line of JSON a figure, as run.py reads them.
"""

import argparse
import gc
import json
import multiprocessing
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

import msgpack
from xxhash import xxh3_64_intdigest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True      # nothing is made outside of build/
sys.path.append(os.path.join(HERE, os.pardir, 'demo'))

from processes import free_port                                 # noqa: E402

LUA = os.path.join(os.path.dirname(HERE), 'lua')
MODULES = os.environ.get('KVR_MODULES', '/usr/lib/nginx/modules')

BLOCK_SIZE = 16
BLOCKS = 64                     # of an event
WORKERS = 16                    # that are candidates, and have events
CHAINS = 64                     # of a worker, of BLOCKS blocks each
HELD = CHAINS // 2              # of these at a time
PROMPTS = 64
PROMPT_TOKENS = 4096
REQUESTS = 500                  # a second, to all three places
WARM_SECONDS = 1
WINDOW_SECONDS = 1
SETTLE_SECONDS = 0.05
PATIENCE = 20

PLACES = ('routed', 'routed', 'plain', 'past nginx')
PERCENTILES = ((50, 'p50'), (99, 'p99'), (99.9, 'p99.9'))

# name, how events are written, seconds between two bursts of them
LOADS = (
    ('normalised', 'normalised', 0.001),
    ('vLLM', 'vllm', 0.001),
    ('vLLM, in bursts', 'vllm', 0.02),
)

CONF = '''
load_module {modules}/ndk_http_module.so;
load_module {modules}/ngx_http_lua_module.so;
load_module {build}/ngx_http_kv_router_module.so;

{user}
worker_processes  1;
daemon            off;
pid               router.pid;
error_log         router.log notice;

events {{
    worker_connections  1024;
}}

http {{
    client_body_temp_path  body;
    proxy_temp_path        proxy;
    fastcgi_temp_path      fastcgi;
    uwsgi_temp_path        uwsgi;
    scgi_temp_path         scgi;
    access_log             off;

    kv_router_zone   zone=main:{zone} block_size={block_size};
    kv_router_redis  main redis://127.0.0.1:{redis} replay={replay};
{workers}

    lua_package_path  "{lua}/?.lua;;";

    init_by_lua_block {{
        router = require("resty.kv_router").new("main", {{
            policy = "{policy}", tokenizer = "none"
        }})
    }}

    upstream engines {{
        server  0.0.0.1;
        balancer_by_lua_block {{ router:balance() }}
        keepalive  64;
    }}

    upstream engine {{
        server  127.0.0.1:{engine};
        keepalive  64;
    }}

    client_max_body_size     1m;
    client_body_buffer_size  1m;
    keepalive_requests       1000000000;
    proxy_http_version       1.1;
    proxy_set_header         Connection "";
    proxy_buffering          off;

    server {{
        listen  127.0.0.1:{port};

        location /routed {{
            access_by_lua_block {{ router:access() }}
            log_by_lua_block    {{ router:log() }}
            proxy_pass          http://engines;
        }}

        location /plain {{
            proxy_pass  http://engine;
        }}

        location = /here {{
            return  200 "{{}}";
        }}

        location = /status {{
            kv_router_status  main;
        }}

        location /kv/ {{
            kv_router_api  main;
        }}
    }}
}}
'''

ENGINE = '''
{user}
worker_processes  1;
daemon            off;
pid               engine.pid;
error_log         engine.log;

events {{
    worker_connections  1024;
}}

http {{
    client_body_temp_path  body;
    proxy_temp_path        proxy;
    fastcgi_temp_path      fastcgi;
    uwsgi_temp_path        uwsgi;
    scgi_temp_path         scgi;
    access_log             off;
    keepalive_requests     1000000000;
    client_max_body_size   1m;

    server {{
        listen  127.0.0.1:{engine};
        return  200 "{{}}";
    }}
}}
'''


def until(what, check, pause=0.05):
    """Waits until check() is true, looking after each pause."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            if check():
                return
        except OSError:
            pass
        if time.monotonic() > end:
            sys.exit('bench: %s: not after %d s' % (what, PATIENCE))
        time.sleep(pause)


def figure(name, unit, value):
    """Prints one, as run.py reads it."""
    print(json.dumps({'who': 'ours', 'name': name, 'unit': unit,
                      'value': value}))


def hurry(priority=1):
    """As root: what else runs here comes second."""
    if os.geteuid() == 0:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))


# ---- events ---------------------------------------------------------------

def le64(numbers):
    return struct.pack('<%dQ' % len(numbers), *numbers)


def stored(form, parent, handles, tokens):
    """An event of blocks stored."""
    if form == 'vllm':
        return ['BlockStored', handles, parent, tokens, BLOCK_SIZE, None,
                'GPU', None]

    data = struct.pack('<%dI' % len(tokens), *tokens)
    size = 4 * BLOCK_SIZE

    return ['s', 0, 0, parent, le64(handles), le64(
        [xxh3_64_intdigest(data[i:i + size], seed=1337)
         for i in range(0, len(data), size)])]


def removed(form, handles):
    """An event of blocks removed."""
    return (['BlockRemoved', handles, 'GPU'] if form == 'vllm'
            else ['r', 0, 0, le64(handles)])


class Publisher:
    """One worker's messages, as commands for Redis."""

    def __init__(self, form, name, epoch):
        self.form, self.seq = form, 0
        self.channel = ('kv-events:' + name).encode()
        self.head = b'\x97' + b''.join(
            msgpack.packb(v) for v in ('kvr1', name, epoch))

    def batch(self, events):
        """The bytes of a batch that do not change."""
        if self.form == 'vllm':
            return msgpack.packb([time.time(), events])

        return b'\xc3\x00' + msgpack.packb(msgpack.packb(events))

    def command(self, batch):
        """PUBLISH, with the next number."""
        if self.form != 'vllm':
            self.seq += 1
            batch = self.head + msgpack.packb(self.seq) + batch

        return b'*3\r\n$7\r\nPUBLISH\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n' % (
            len(self.channel), self.channel, len(batch), batch)


def churn(publishers, rng):
    """Batches that store and remove for ever, BLOCKS blocks each."""
    batches = []

    for publisher in publishers:
        stores, removes = [], []

        for _ in range(CHAINS):
            handles = [rng.getrandbits(64) for _ in range(BLOCKS)]
            tokens = [rng.randrange(1 << 17)
                      for _ in range(BLOCKS * BLOCK_SIZE)]
            stores.append(publisher.batch(
                [stored(publisher.form, None, handles, tokens)]))
            removes.append(publisher.batch(
                [removed(publisher.form, handles[::-1])]))

        batches.append((publisher, stores, removes))

    turn = 0

    while True:
        for publisher, stores, removes in batches:
            yield publisher.command(stores[turn % CHAINS])
        if turn >= HELD:
            for publisher, stores, removes in batches:
                yield publisher.command(removes[(turn - HELD) % CHAINS])
        turn += 1


def publish(port, commands, rate, pause, going):
    """Sends rate blocks/s while it shall, with pauses between bursts."""
    gc.disable()
    connection = socket.create_connection(('127.0.0.1', port))
    start, count = None, 0

    while True:
        time.sleep(pause)
        now = time.monotonic()
        if not going.value:
            start = None
        elif start is None:
            start, count = now, 0
        else:
            due = int((now - start) * rate / BLOCKS) - count
            connection.sendall(b''.join(next(commands) for _ in range(due)))
            count += due
        while select.select([connection], [], [], 0)[0]:
            if not connection.recv(1 << 16):
                return


# ---- requests -------------------------------------------------------------

class Client:
    """One connection kept open, one request at a time."""

    def __init__(self, port, path, bodies):
        self.connection = socket.create_connection(('127.0.0.1', port))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.requests = [(
            'POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: '
            'application/json\r\nContent-Length: %d\r\n\r\n'
            % (path, len(body))).encode() + body for body in bodies]
        self.times = None

    def ask(self, number):
        """Sends a request and reads its answer."""
        self.connection.sendall(self.requests[number % len(self.requests)])
        answer = b''
        while not answer.endswith(b'{}'):
            data = self.connection.recv(1 << 16)
            if not data:
                break
            answer += data
        if not answer.startswith(b'HTTP/1.1 200 '):
            sys.exit('bench: %r' % answer[:200])


def ask_all(clients, seconds):
    """Requests at a fixed rate, to the clients in turns.

    The time of one counts from when it was due if an earlier one was late.
    """
    gc.disable()
    start = time.perf_counter()
    end = start
    number = 0

    while True:
        due = start + number / REQUESTS
        if due > start + seconds:
            break
        if end < due:
            while True:
                now = time.perf_counter()
                if now >= due:
                    break
                time.sleep(due - now)
            due = now
        client = clients[number % len(clients)]
        client.ask(number // len(clients))
        end = time.perf_counter()
        if client.times is not None:
            client.times.append(end - due)
        number += 1

    gc.enable()


# ---- one load -------------------------------------------------------------

class Stage:
    """Redis, and both nginx."""

    confs = (('engine', ENGINE), ('router', CONF))      # in order of starting
    workers = WORKERS

    def __init__(self, args, zone='256m', replay='off'):
        self.directory = tempfile.mkdtemp(prefix='kv-router-bench-')
        self.redis, self.engine, self.port = (free_port() for _ in range(3))
        self.names = ['w%d' % i for i in range(self.workers)]
        self.processes = []
        values = self.values(args, zone, replay)

        for name, text in self.confs:
            with open('%s/%s.conf' % (self.directory, name), 'w',
                      encoding='utf-8') as f:
                f.write(text.format(**values))

    def values(self, args, zone, replay):
        """What the configurations are filled with."""
        return {
            'modules': MODULES, 'build': os.path.abspath(args.build),
            'lua': os.path.abspath(args.lua),
            'user': 'user root;' if os.geteuid() == 0 else '',
            'block_size': BLOCK_SIZE, 'redis': self.redis,
            'zone': zone, 'replay': replay, 'policy': args.policy,
            'engine': self.engine, 'port': self.port,
            'workers': '\n'.join(
                '    kv_router_worker main %s 127.0.0.1:%d;'
                % (name, self.engine) for name in self.names),
        }

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        self.spawn('redis-server', '--bind', '127.0.0.1', '--port',
                   str(self.redis), '--save', '')
        until('redis', lambda: socket.create_connection(
            ('127.0.0.1', self.redis)).close() is None)
        for name, _ in self.confs:
            self.spawn('nginx', '-p', self.directory + '/', '-c',
                       name + '.conf', '-e', name + '.log')
        until('nginx', lambda: self.status()['redis']['up'])

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
            process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def spawn(self, *command):
        self.processes.append(subprocess.Popen(
            command, cwd=self.directory, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def nginx(self):
        """The number of the process that routes."""
        pid = self.processes[len(self.confs)].pid
        with open('/proc/%d/task/%d/children' % (pid, pid),
                  encoding='utf-8') as f:
            return int(f.read().split()[0])

    def status(self):
        with urllib.request.urlopen('http://127.0.0.1:%d/status' % self.port,
                                    timeout=5) as answer:
            return json.load(answer)

    def messages(self):
        """What was applied; nothing may have gone wrong."""
        counters = [worker['counters'] for worker in self.status()['workers']]
        for name in ('gaps', 'duplicates', 'blocks_unknown'):
            assert not any(c[name] for c in counters), (name, counters)
        return sum(c['messages'] for c in counters)


def make_prompts(rng):
    """Prompts of token ids, and the bodies of requests for them."""
    prompts = [[rng.randrange(1 << 17) for _ in range(PROMPT_TOKENS)]
               for _ in range(PROMPTS)]

    return prompts, [
        json.dumps({'prompt': p}, separators=(',', ':')).encode()
        for p in prompts]


def measure(args, form, pause):
    """Times by place, without events and with them; blocks/s applied."""
    rng = random.Random(1)
    prompts, bodies = make_prompts(rng)

    with Stage(args) as stage:
        epoch = int(time.time() * 1000)
        publishers = [Publisher(form, name, epoch) for name in stage.names]

        with socket.create_connection(('127.0.0.1', stage.redis)) as redis:
            for i, tokens in enumerate(prompts):
                publisher = publishers[i % WORKERS]
                handles = [rng.getrandbits(64)
                           for _ in range(PROMPT_TOKENS // BLOCK_SIZE)]
                redis.sendall(publisher.command(publisher.batch(
                    [stored(form, None, handles, tokens)])))
            until('prompts', lambda: stage.messages() == PROMPTS)

        going = multiprocessing.Value('b', 0)
        child = multiprocessing.Process(target=publish, daemon=True, args=(
            stage.redis, churn(publishers, rng), args.rate, pause, going))
        child.start()

        clients = {
            'routed': Client(stage.port, '/routed/v1/completions', bodies),
            'plain': Client(stage.port, '/plain', bodies),
            'past nginx': Client(stage.engine, '/', bodies),
        }
        turns = [clients[place] for place in PLACES]
        times = [{place: [] for place in clients} for _ in range(2)]
        applied = spent = 0
        going.value = 1
        until('events', lambda: stage.messages() > PROMPTS)
        ask_all(turns, WARM_SECONDS)

        for _ in range(round(args.seconds / WINDOW_SECONDS)):
            for going.value in (0, 1):
                time.sleep(SETTLE_SECONDS)
                before, start = stage.messages(), time.monotonic()
                for place, client in clients.items():
                    client.times = times[going.value][place]
                ask_all(turns, WINDOW_SECONDS)
                if going.value:
                    applied += stage.messages() - before
                    spent += time.monotonic() - start

        child.terminate()
        child.join()

        reasons = stage.status()['requests']['by_reason']
        assert reasons['policy'] >= sum(len(t['routed']) for t in times), (
            reasons)

        return times[0], times[1], applied * BLOCKS / spent


def percentile(times, percent):
    """The nearest rank, in milliseconds."""
    ordered = sorted(times)
    return 1000 * ordered[min(len(ordered) - 1,
                              int(len(ordered) * percent / 100))]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--build', default=os.path.join(HERE, '../build'))
    parser.add_argument('--seconds', type=float, default=8)
    parser.add_argument('--rate', type=int, default=200000)
    parser.set_defaults(lua=LUA, policy='kv_cost')
    args = parser.parse_args()

    hurry()

    loads = list(LOADS)
    random.shuffle(loads)
    results = {}

    for name, form, pause in loads:
        results[name] = measure(args, form, pause)

    for name, _, _ in LOADS:
        calm, busy, applied = results[name]
        name = 'latency: ' + name
        figure(name, 'k blocks/s', applied / 1000)

        for place in calm:
            for percent, text in PERCENTILES:
                values = [percentile(times[place], percent)
                          for times in (calm, busy)]
                for value, when in zip(values, (' without', '')):
                    figure('%s, %s, %s%s' % (name, place, text, when), 'ms',
                           value)
                if text == 'p99':
                    figure('%s, %s, p99 rises by' % (name, place), 'ms',
                           values[1] - values[0])


if __name__ == '__main__':
    main()
