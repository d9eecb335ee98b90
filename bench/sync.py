#!/usr/bin/python3
# Copyright (C) the nginx-kv-router authors

"""What it costs that several nginx share their load.

    sync.py [--build DIR] [--seconds N] [--rate R] [--events R]
            [--routers N,N...] [--processes N]

Real nginx, each with two processes, or N, and 512 workers; a real Redis; an
engine that answers after 0.2 s (another nginx).  All routers together get RATE
requests a second, at random times, each with a prompt of 4096 token ids that
nobody has, while R blocks a second of other workers are stored and removed.
One router first, then as many as --routers says, with
kv_router_sync off and on.

Of each are printed, as run.py reads them: the processor time of all nginx by
request, with and without; the bytes that Redis gets more by request, and its
processor time more as a share of a core; and of the lag that the peers have in
/status, the median and the 99th percentile.
"""

import argparse
import json
import multiprocessing
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.dont_write_bytecode = True

from latency import (LUA, MODULES, Publisher, churn, figure,    # noqa: E402
                     publish, until)
from processes import free_port                                 # noqa: E402

BLOCK_SIZE = 16
PROMPT_TOKENS = 4096
PROMPTS = 64
WORKERS = 512
PUBLISHERS = 64                 # of these
CONNECTIONS = 128               # of a router
SETTLE = 2                      # seconds

HEAD = '''
load_module {modules}/ndk_http_module.so;
load_module {modules}/ngx_http_lua_module.so;
load_module {build}/ngx_http_kv_router_module.so;

{user}
worker_processes  {processes};
daemon            off;
pid               {name}.pid;
error_log         {name}.log warn;

events {{
    worker_connections  2048;
}}

http {{
    client_body_temp_path    {name}-body;
    proxy_temp_path          {name}-proxy;
    fastcgi_temp_path        {name}-fastcgi;
    uwsgi_temp_path          {name}-uwsgi;
    scgi_temp_path           {name}-scgi;
    access_log               off;
    keepalive_requests       1000000000;
    client_max_body_size     1m;
    client_body_buffer_size  1m;
    proxy_http_version       1.1;
    proxy_set_header         Connection "";
'''

ENGINE = HEAD + '''
    server {{
        listen  127.0.0.1:{port};
        location / {{
            content_by_lua_block {{
                ngx.req.discard_body()
                ngx.sleep(0.2)
                ngx.header.content_length = 2
                ngx.print("{{}}")
            }}
        }}
    }}
}}
'''

ROUTER = HEAD + '''
    kv_router_zone   zone=main:256m block_size={block_size};
    kv_router_redis  main redis://127.0.0.1:{redis};
    {sync}
{workers}
    lua_package_path  "{lua}/?.lua;;";

    init_by_lua_block {{
        router = require("resty.kv_router").new("main", {{
            tokenizer = "none"
        }})
    }}

    upstream engines {{
        server  0.0.0.1;
        balancer_by_lua_block {{ router:balance() }}
        keepalive  128;
    }}

    server {{
        listen  127.0.0.1:{port} reuseport;

        location /v1/ {{
            access_by_lua_block {{ router:access() }}
            log_by_lua_block    {{ router:log() }}
            proxy_pass          http://engines;
        }}

        location = /status {{
            kv_router_status  main;
        }}
    }}
}}
'''


class Stage:
    """Redis, the engine and the routers, in a folder of their own."""

    def __init__(self, build):
        self.build = os.path.abspath(build)
        self.folder = tempfile.mkdtemp(prefix='kv-router-bench-')
        self.redis = free_port()
        self.engine = free_port()
        self.running = []
        self.events = None

    def spawn(self, *command):
        """Starts a program."""
        process = subprocess.Popen(command, cwd=self.folder,
                                   stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        self.running.append(process)
        return process

    def nginx(self, name, text, port, processes, **more):
        """Starts an nginx; its master."""
        path = os.path.join(self.folder, name + '.conf')
        with open(path, 'w', encoding='utf-8') as conf:
            conf.write(text.format(
                modules=MODULES, build=self.build, lua=LUA, name=name,
                user='user  root;' if os.geteuid() == 0 else '', port=port,
                processes=processes, block_size=BLOCK_SIZE, redis=self.redis,
                workers='\n'.join(
                    'kv_router_worker  main w%d 127.0.0.1:%d;'
                    % (i, self.engine) for i in range(WORKERS)), **more))
        return self.spawn('nginx', '-p', self.folder, '-c', path, '-e',
                          os.path.join(self.folder, name + '-start.log'))

    def start(self):
        """Redis, and the engine."""
        self.spawn('redis-server', '--bind', '127.0.0.1', '--port',
                   str(self.redis), '--save', '', '--appendonly', 'no')
        until('redis', lambda: self.info('redis_version'))
        self.nginx('engine', ENGINE, self.engine, 1)

    def churn(self, rate):
        """Events of some workers flow from now on."""
        epoch = int(time.time() * 1000)
        self.events = multiprocessing.Process(
            target=publish, daemon=True, args=(
                self.redis, churn([Publisher('normalised', 'w%d' % i, epoch)
                                   for i in range(PUBLISHERS)],
                                  random.Random(1)),
                rate, 0.01, multiprocessing.Value('b', 1)))
        self.events.start()

    def info(self, field):
        """A field of Redis' INFO."""
        done = subprocess.run(['redis-cli', '-p', str(self.redis), 'INFO'],
                              stdout=subprocess.PIPE, check=False,
                              stderr=subprocess.DEVNULL,
                              universal_newlines=True)
        for line in done.stdout.splitlines():
            if line.startswith(field + ':'):
                return line.split(':', 1)[1]
        return None

    def stop(self, processes):
        """Ends some of them."""
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
            self.running.remove(process)


def status(port):
    """A router's status."""
    with urllib.request.urlopen('http://127.0.0.1:%d/status' % port,
                                timeout=5) as answer:
        return json.load(answer)


def seconds_of(masters):
    """The processor time of the children of some masters."""
    ticks = 0
    for master in masters:
        with open('/proc/%d/task/%d/children' % (master.pid, master.pid),
                  encoding='ascii') as children:
            for pid in children.read().split():
                with open('/proc/%s/stat' % pid, encoding='ascii') as stat:
                    fields = stat.read().rpartition(')')[2].split()
                    ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf('SC_CLK_TCK')


def prompts(path):
    """Requests for the load, each with a salt of its own."""
    rng = random.Random(1)
    with open(path, 'wb') as out:
        for _ in range(PROMPTS):
            body = json.dumps({
                'model': 'm', 'max_tokens': 1,
                'cache_salt': '################',
                'prompt': [rng.randrange(1000, 100000)
                           for _ in range(PROMPT_TOKENS)]}).encode()
            request = (b'POST /v1/completions HTTP/1.1\r\nHost: bench\r\n'
                       b'Content-Type: application/json\r\n'
                       b'Content-Length: %d\r\n\r\n' % len(body)) + body
            out.write(b'%d\n%s' % (len(request), request))


def measure(args, stage, routers, sync):
    """One group under load: (microseconds, bytes, core, lags)."""
    ports = [free_port() for _ in range(routers)]
    masters = [stage.nginx('router%d' % i, ROUTER, port, args.processes,
                           sync='' if sync else 'kv_router_sync main off;')
               for i, port in enumerate(ports)]
    for port in ports:
        until('a router answers', lambda port=port: status(port))
    if sync and routers > 1:
        for port in ports:
            until('all peers are heard', lambda port=port: len(
                status(port)['sync']['peers']) == routers - 1)
    loads = [subprocess.Popen(
        [os.path.join(stage.build, 'bench', 'load'), str(port),
         os.path.join(stage.folder, 'prompts'), str(CONNECTIONS),
         str(args.seconds + SETTLE), str(args.rate / routers)],
        stdout=subprocess.PIPE, universal_newlines=True) for port in ports]
    time.sleep(SETTLE)
    before = (seconds_of(masters), float(stage.info('total_net_input_bytes')),
              float(stage.info('used_cpu_user'))
              + float(stage.info('used_cpu_sys')))
    lags, end = [], time.monotonic() + args.seconds - 0.5
    start = time.monotonic()
    while time.monotonic() < end:
        # off, too: a status of so many workers takes time
        lags += [peer['lag'] * 1000 for peer in
                 status(ports[0]).get('sync', {}).get('peers', ())]
        time.sleep(0.1)
    took = time.monotonic() - start
    after = (seconds_of(masters), float(stage.info('total_net_input_bytes')),
             float(stage.info('used_cpu_user'))
             + float(stage.info('used_cpu_sys')))
    for process in loads:
        text = process.communicate()[0].split()
        if not text or int(text[1]):
            sys.exit('sync: some requests were not answered by 200: %s' % text)
    stage.stop(masters)
    requests = args.rate * took
    return ((after[0] - before[0]) * 1e6 / requests,
            (after[1] - before[1]) / requests,
            (after[2] - before[2]) / took, lags)


def main():
    """The program."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--build', default=os.path.join(
        os.path.dirname(os.path.abspath(__file__)), '../build'))
    parser.add_argument('--seconds', type=float, default=8)
    parser.add_argument('--rate', type=float, default=400)
    parser.add_argument('--events', type=float, default=2000)
    parser.add_argument('--routers', default='1,2,4,8')
    parser.add_argument('--processes', type=int, default=2)
    args = parser.parse_args()
    stage = Stage(args.build)

    try:
        prompts(os.path.join(stage.folder, 'prompts'))
        stage.start()
        stage.churn(args.events)

        for routers in map(int, args.routers.split(',')):
            name = 'sync, %d nginx' % routers
            took, other, others, _ = measure(args, stage, routers, False)
            figure(name + ', off: processor time a request', 'us', took)
            took, size, core, lags = measure(args, stage, routers, True)
            figure(name + ': processor time a request', 'us', took)
            figure(name + ': bytes to Redis a request', 'bytes', size - other)
            figure(name + ": Redis' processor time", '% of a core',
                   100 * (core - others))

            if lags:
                lags.sort()
                figure(name + ': lag, median', 'ms', statistics.median(lags))
                figure(name + ': lag, p99', 'ms',
                       lags[min(len(lags) - 1, len(lags) * 99 // 100)])

            sys.stdout.flush()
    finally:
        if stage.events:
            stage.events.kill()
        for process in reversed(stage.running):
            process.terminate()
            process.wait()
        shutil.rmtree(stage.folder, ignore_errors=True)


if __name__ == '__main__':
    main()
