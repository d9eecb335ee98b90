#!/usr/bin/python3
# Copyright (C) the nginx-kv-router authors

"""What routers make a request cost: plain nginx, ours, and two others.

    rivals.py [--build DIR] [--lua DIR] [--model DIR] [--seconds N]
              [--rounds N] [--perf] [--turns [--rate N] [--short N]]
              [--only WORD] [--ours]

CPU time of the router, in microseconds a request, as the scheduler counts it,
with 16 connections that are always busy: the median of the rounds, the routers
in turns.  The router has a core of its own; the client (load/load.c) and the
stub engine (another nginx) share another one.

The others are sglang-router and vllm-router of the Python registry, each in a
virtual environment below DIR/bench-rivals; one that can't be installed, or
does not answer, is skipped with a word.  Both route by their own policy
"cache_aware", a tree of texts: vllm-router needs an engine that publishes
events for a better one.  sglang-router takes token ids by /generate only.
The chats of prose, code and Chinese have their ids by the model of the zone,
--model; its own is small, so that a text has more tokens than by a large one.
A new chat begins with words that no other has; an extending one is a chat that
was there before with one answer and one question more.

One run prints one line of JSON a figure, as run.py reads them.  With --perf
no other router is started, and the run prints where plain nginx and ours spend
the time: samples of "perf record -e cpu-clock", as shares of the CPU time.
With --turns it prints the longest turn of the event loop, in CPU time, and how
many took more than 1 ms: load/turns.c; of plain nginx and of ours, with one and
with four connections that are always busy.  With --rate they send so many
requests a second, at random times.  With --short so many requests of 512 ids a
second are sent beside them, and their latency is printed: the median, the 99th
percentile and the longest.

--only measures the forms with this in their names, --ours no other router.
"""

import argparse
import collections
import glob
import json
import os
import random
import re
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time

sys.dont_write_bytecode = True      # nothing is made outside of build/
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                             os.pardir, 'demo'))

from latency import (BLOCK_SIZE, HERE, LUA, Publisher, Stage, figure,
                     stored, until)                             # noqa: E402
from processes import free_port                                 # noqa: E402
import rival_routers as others      # of the demo               # noqa: E402

ENGINES = 4
CONNECTIONS = 16
FEW = 4                         # of chats by the model: nginx encodes 8 at once,
                                # and routes more than these by load
PROMPTS = 64                    # of each form
CHAT = 16 << 10                 # bytes of a chat
CHAT_IDS = 4096                 # that the stub makes of any chat
START_SECONDS = 40
WARM_SECONDS = 0.5              # of each router and form, before the rounds
BEFORE = '.before'              # a file's of requests that are extended
MARK = '#' * 16                 # made a number by load/load.c

MIDDLE = 165 << 10              # of a long chat
LONG = 470 << 10                # of an agent's chat
LONG_PROMPTS = 4
SENTENCE = 16                   # Chinese characters
EXTENDING, NEW = 'extending', 'new'
CHATS = tuple((kind, size, turn) for size in (CHAT, MIDDLE, LONG)
              for turn in (NEW, EXTENDING)
              for kind in ('prose', 'code', 'Chinese'))


def chat_form(kind, size, turn):
    """The name of a form of chats."""
    return 'chat of %d KB, %s, %s' % (size >> 10, kind, turn)


# forms: name, path, path at sglang-router, where ours gets it
FORMS = (
    ('4096 ids', '/v1/completions', '/generate', 'by ids'),
    ('512 ids', '/v1/completions', '/generate', 'by ids'),
    ('chat of 16 KB by load', '/v1/chat/completions', None, 'by ids'),
    ('chat of 16 KB by tokenizer', '/v1/chat/completions', None, 'by text'),
) + tuple((chat_form(*chat), '/v1/chat/completions', None, 'local')
          for chat in CHATS)
SHORT = '512 ids'               # of requests beside others
LOCAL = {name for name, *_, where in FORMS if where == 'local'}

ROUTER = '''
load_module {modules}/ndk_http_module.so;
load_module {modules}/ngx_http_lua_module.so;
load_module {build}/ngx_http_kv_router_module.so;

{user}
worker_processes  1;
daemon            off;
pid               router.pid;
error_log         router.log warn;

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
    kv_router_model  main {model} engine=vllm;
{workers}

    lua_package_path  "{lua}/?.lua;;";

    init_by_lua_block {{
        local kv = require "resty.kv_router"

        by_ids = kv.new("main", {{ tokenizer = "none" }})
        by_text = kv.new("main", {{ tokenizer = "remote" }})
        by_model = kv.new("main", {{ tokenizer = "local" }})
    }}

    upstream by_ids {{
        server  0.0.0.1;
        balancer_by_lua_block {{ by_ids:balance() }}
        keepalive  64;
    }}

    upstream by_text {{
        server  0.0.0.1;
        balancer_by_lua_block {{ by_text:balance() }}
        keepalive  64;
    }}

    upstream by_model {{
        server  0.0.0.1;
        balancer_by_lua_block {{ by_model:balance() }}
        keepalive  64;
    }}

    upstream plain {{
{servers}
        keepalive  64;
    }}

    client_max_body_size     1m;
    client_body_buffer_size  1m;
    keepalive_requests       1000000000;
    proxy_http_version       1.1;
    proxy_set_header         Connection "";
    proxy_buffering          off;

    server {{
        listen  127.0.0.1:{plain};

        location / {{
            proxy_pass  http://plain;
        }}
    }}

    server {{
        listen  127.0.0.1:{port};

        location / {{
            access_by_lua_block {{ by_ids:access() }}
            log_by_lua_block    {{ by_ids:log() }}
            proxy_pass          http://by_ids;
        }}

        location = /status {{
            kv_router_status  main;
        }}
    }}

    server {{
        listen  127.0.0.1:{text};

        location / {{
            access_by_lua_block {{ by_text:access() }}
            log_by_lua_block    {{ by_text:log() }}
            proxy_pass          http://by_text;
        }}
    }}

    server {{
        listen  127.0.0.1:{local};

        location / {{
            access_by_lua_block {{ by_model:access() }}
            log_by_lua_block    {{ by_model:log() }}
            proxy_pass          http://by_model;
        }}
    }}
}}
'''

ENGINE = '''
load_module {modules}/ndk_http_module.so;
load_module {modules}/ngx_http_lua_module.so;

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
    default_type           application/json;
    keepalive_requests     1000000000;
    client_max_body_size   1m;
    client_body_buffer_size  1m;

    init_by_lua_block {{
        local file = assert(io.open("{directory}/tokens.json"))

        tokens = file:read("*a")
        file:close()

        answer = [[{answer}]]
    }}

    server {{
{listen}

        location = /tokenize {{
            content_by_lua_block {{
                ngx.req.read_body()
                ngx.header.content_length = #tokens
                ngx.print(tokens)
            }}
        }}

        location / {{
            content_by_lua_block {{
                ngx.req.read_body()
                ngx.header.content_length = #answer
                ngx.print(answer)
            }}
        }}
    }}
}}
'''

ANSWER = {'id': 'bench', 'object': 'text_completion', 'created': 0,
          'model': 'bench', 'text': ' ok', 'meta_info': {},
          'choices': [{'index': 0, 'text': ' ok', 'finish_reason': 'stop',
                       'message': {'role': 'assistant', 'content': ' ok'}}],
          'data': [{'id': 'bench', 'object': 'model'}],
          'usage': {'prompt_tokens': 1, 'completion_tokens': 1,
                    'total_tokens': 2}}


class Rivals(Stage):
    """Redis, the stub engine on several ports, and our nginx."""

    confs = (('engine', ENGINE), ('router', ROUTER))
    workers = ENGINES

    def __init__(self, args, ids):
        self.plain, self.text = free_port(), free_port()
        self.turns = args.turns and os.path.join(args.build,
                                                 'bench/turns.so')
        self.local, self.model = free_port(), os.path.abspath(args.model)
        self.engines = [free_port() for _ in range(ENGINES)]
        super().__init__(args)
        with open(self.directory + '/tokens.json', 'w', encoding='utf-8') as f:
            json.dump({'count': len(ids), 'max_model_len': 1 << 17,
                       'tokens': ids}, f)

    def spawn(self, *command):
        if self.turns and 'router.conf' in command:
            path = os.path.join(self.directory, 'turns')
            with open(path, 'wb') as f:
                f.write(bytes(24))
            command = ('env', 'LD_PRELOAD=' + self.turns,
                       'KVR_TURNS=' + path) + command
        super().spawn(*command)

    def values(self, args, zone, replay):
        found = super().values(args, zone, replay)
        found.update(
            plain=self.plain, text=self.text, directory=self.directory,
            local=self.local, model=self.model,
            answer=json.dumps(ANSWER),
            listen='\n'.join('        listen  127.0.0.1:%d;' % port
                             for port in self.engines),
            servers='\n'.join('        server  127.0.0.1:%d;' % port
                              for port in self.engines),
            workers='\n'.join(
                '    kv_router_worker main %s 127.0.0.1:%d;' % pair
                for pair in zip(self.names, self.engines)))
        return found


# ---- the others -----------------------------------------------------------

def launch(stage, build, name, core):
    """Starts one of the others; its process and port, or None."""
    try:
        python = others.install(os.path.join(build, 'bench-rivals'), name)
    except (OSError, subprocess.CalledProcessError):
        print('rivals: %s skipped: it could not be installed' % name,
              file=sys.stderr)
        return None

    port = free_port()
    with open(os.path.join(stage.directory, name + '.log'), 'w',
              encoding='utf-8') as log:
        process = subprocess.Popen(
            others.command(python, name, port, free_port(),
                           ['127.0.0.1:%d' % p for p in stage.engines]),
            cwd=stage.directory, stdin=subprocess.DEVNULL, stdout=log,
            stderr=log)
    stage.processes.append(process)
    os.sched_setaffinity(process.pid, {core})

    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            if others.answers(port, 'bench'):
                return process.pid, port
        except OSError:
            time.sleep(0.2)

    print('rivals: %s skipped: it does not answer' % name, file=sys.stderr)
    return None


# ---- measuring ------------------------------------------------------------

def spent(pid):
    """Microseconds of CPU time of a process, its threads and children."""
    total = 0
    for task in os.listdir('/proc/%d/task' % pid):
        base = '/proc/%d/task/%s/' % (pid, task)
        with open(base + 'schedstat', encoding='utf-8') as f:
            total += int(f.read().split()[0]) / 1000
        with open(base + 'children', encoding='utf-8') as f:
            total += sum(spent(int(child)) for child in f.read().split())
    return total


def write_requests(path, uri, bodies):
    """The requests of a form, as load/load.c reads them."""
    with open(path, 'wb') as f:
        for body in bodies:
            body = json.dumps(body, separators=(',', ':'),
                              ensure_ascii=False).encode()
            request = ('POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: '
                       'application/json\r\nContent-Length: %d\r\n\r\n'
                       % (uri, len(body))).encode() + body
            f.write(b'%d\n%s' % (len(request), request))


def make_bodies(rng):
    """{form: [(tokens or None, body of all, body of sglang-router)]}."""
    found = {}
    for name, size in (('4096 ids', 4096), ('512 ids', 512)):
        found[name] = []
        for _ in range(PROMPTS):
            ids = [rng.randrange(1 << 17) for _ in range(size)]
            found[name].append((ids, {'model': 'bench', 'prompt': ids},
                                {'input_ids': ids}))

    words = [''.join(rng.choices('abcdefghijklmnopqrstuvwxyz',
                                 k=rng.randrange(2, 9)))
             for _ in range(4096)]
    chats = []
    for _ in range(PROMPTS):
        text = ' '.join(rng.choices(words, k=CHAT // 4))[:CHAT - 400]
        body = {'model': 'bench', 'messages': [
            {'role': 'system', 'content': 'Answer in one word.'},
            {'role': 'user', 'content': text + ' ' + MARK}]}
        chats.append((None, body, body))
    for name, *_ in FORMS[2:4]:
        found[name] = chats
    texts = sources(rng)
    for kind, size, turn in CHATS:
        found[chat_form(kind, size, turn)] = [
            (None, body, body) for body in (
                long_chat(rng, texts[kind], size, turn)
                for _ in range(LONG_PROMPTS if size > CHAT else PROMPTS))]
    return found


def sources(rng):
    """{kind: a text of more than LONG bytes}."""
    def read(pattern):
        text = ''
        for path in sorted(glob.glob(os.path.join(HERE, os.pardir, pattern))):
            with open(path, encoding='utf-8') as f:
                text += f.read()
        return text * (LONG // len(text) + 1)

    common = [chr(0x4e00 + rng.randrange(20000)) for _ in range(2000)]
    chinese = ''.join(
        ''.join(rng.choices(common, k=SENTENCE)) + rng.choice('\uff0c\u3002')
        for _ in range(LONG // SENTENCE))
    return {'prose': read('docs/*.md'), 'code': read('src/*/*.c'),
            'Chinese': chinese}


def long_chat(rng, text, size, turn):
    """A chat of so many bytes in JSON; the mark is in its first message, or,
    of an extending one, in its last one."""
    messages, each = [], 4096
    at = rng.randrange(len(text) - size // 3)
    if turn == NEW:
        messages.append({'role': 'system', 'content': MARK})
    while size > 0:
        piece = text[at:at + each]
        at = (at + each) % (len(text) - each)
        messages += [{'role': 'user', 'content': piece[:each // 4]},
                     {'role': 'assistant', 'content': piece[each // 4:]}]
        size -= len(json.dumps(piece, ensure_ascii=False).encode())
    messages.append({'role': 'user', 'content': 'And then? '
                     + (MARK if turn == EXTENDING else '')})
    return {'model': 'bench', 'messages': messages}


def publish(stage, prompts):
    """Has each prompt cached at one of the workers."""
    publishers = [Publisher('normalised', name, int(time.time() * 1000))
                  for name in stage.names]
    rng = random.Random(2)
    with socket.create_connection(('127.0.0.1', stage.redis)) as redis:
        for i, ids in enumerate(prompts):
            handles = [rng.getrandbits(64)
                       for _ in range(len(ids) // BLOCK_SIZE)]
            publisher = publishers[i % len(publishers)]
            redis.sendall(publisher.command(publisher.batch(
                [stored('normalised', None, handles, ids)])))
        until('prompts', lambda: stage.messages() == len(prompts))


def warm(program, port, path, form):
    """The form's requests for a moment; before them, those that its chats
    extend: an extending chat ends with an answer and a question."""
    if EXTENDING in form:
        load(program, port, path + BEFORE, form, WARM_SECONDS)
    load(program, port, path, form, WARM_SECONDS)


def load(program, port, path, form, seconds, many=None, rate=0):
    """How many requests were answered by 200, and how many otherwise; three
    figures of their latency in us."""
    with loading(program, port, path, seconds,
                 many or (FEW if form in LOCAL else CONNECTIONS),
                 rate) as client:
        return loaded(client)


def loading(program, port, path, seconds, many, rate):
    """Starts load/load.c."""
    command = [program, str(port), path, str(many), str(seconds)]
    return subprocess.Popen(command + [str(rate)] * (rate > 0),
                            stdout=subprocess.PIPE, universal_newlines=True)


def loaded(client):
    """What load/load.c printed at its end."""
    words = client.communicate()[0].split()
    assert client.returncode == 0
    return [int(word) for word in words]


def profile(args, stage, routers, files):
    """Prints where the time of each router and form goes."""
    program = os.path.join(args.build, 'bench', 'load')
    data = os.path.join(stage.directory, 'perf.data')
    for form in args.forms:
        for name, (pid, ports) in routers.items():
            warm(program, ports[form], files[name, form], form)
            before = spent(pid)
            with subprocess.Popen(
                    ['perf', 'record', '-q', '-e', 'cpu-clock', '-F', '5000',
                     '-p', str(pid), '-o', data]) as perf:
                good, *_ = load(program, ports[form], files[name, form], form,
                               args.seconds)
                cost = (spent(pid) - before) / good
                perf.send_signal(signal.SIGINT)
            lines = subprocess.run(
                ['perf', 'script', '-i', data, '-F', 'ip,sym,dso'],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                check=True, universal_newlines=True).stdout.splitlines()
            where, what = collections.Counter(), collections.Counter()
            for _, symbol, dso in (line.split(None, 2) for line in lines
                                   if len(line.split(None, 2)) == 3):
                dso = os.path.basename(dso.strip('()'))
                where[re.sub('perf-[0-9]+.map', 'traces of LuaJIT', dso)] += 1
                if dso.startswith('ngx_http_kv_router'):
                    what[symbol] += 1
            each = cost / max(1, sum(where.values()))
            print('%s, %s: %.1f us a request' % (form, name, cost))
            for found in (where.most_common(8), what.most_common(10)):
                print('    ' + ', '.join(
                    '%s %.1f' % (key, count * each) for key, count in found
                    if count * each >= 0.1))


def turns(args, stage, routers, files):
    """Prints the longest turn of each form, and those above 1 ms."""
    program = os.path.join(args.build, 'bench', 'load')
    path = os.path.join(stage.directory, 'turns')
    for form, many, name in (
            (form, many, name) for form in args.forms
            for many in ((CONNECTIONS // 2,) if args.rate else (1, FEW))
            for name in routers):
        ports = routers[name][1]
        sent = files[name, form]
        warm(program, ports[form], sent, form)
        with open(path, 'r+b') as f:
            f.write(bytes(24))
        short = args.short and loading(program, ports[SHORT],
                                       files[name, SHORT], args.seconds,
                                       CONNECTIONS, args.short)
        good, bad, *_ = load(program, ports[form], sent, form, args.seconds,
                             many, args.rate)
        with open(path, 'rb') as f:
            longest, above, count = struct.unpack('3Q', f.read(24))
        print('%s, %s, %d connections: %d requests, %d not by 200, longest '
              'turn %.2f ms, %d of %d above 1 ms' % (
                  form, name, many, good, bad, longest / 1e6, above, count))
        if short:
            print('    %d short requests, %d not by 200: median %d us, p99 '
                  '%d us, longest %d us' % tuple(loaded(short)))


def measure(args, stage, routers, files):
    """{(router, form): [microseconds a request]}."""
    program = os.path.join(args.build, 'bench', 'load')
    found = {}
    for number in range(args.rounds + 1):
        for form in args.forms:
            for name, (pid, ports) in routers.items():
                if number == 0 or EXTENDING in form:
                    warm(program, ports[form], files[name, form], form)
                if number == 0:
                    continue
                before = spent(pid)
                good, bad, *_ = load(program, ports[form], files[name, form],
                                     form, args.seconds)
                if bad or good < FEW:
                    print('rivals: %s: %s: a round is left out, %d answers '
                          'by 200, %d others' % (name, form, good, bad),
                          file=sys.stderr)
                else:
                    found.setdefault((name, form), []).append(
                        (spent(pid) - before) / good)
    reasons = stage.status()['requests']['by_reason']
    assert args.only or reasons['policy'] > reasons['no_tokens'] > 0, reasons
    assert reasons['policy'] > 0 and reasons['busy'] == 0, reasons
    return found


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--build', default=os.path.join(HERE, '../build'))
    parser.add_argument('--lua', default=LUA)
    parser.add_argument('--model', default=os.path.join(
        HERE, '../t/vectors/model'))
    parser.add_argument('--seconds', type=float, default=1.5)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--perf', action='store_true')
    parser.add_argument('--turns', action='store_true')
    parser.add_argument('--rate', type=float, default=0)
    parser.add_argument('--short', type=float, default=0)
    parser.add_argument('--only', default='')
    parser.add_argument('--ours', action='store_true')
    parser.set_defaults(batch=None, policy='kv_cost')
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    args.forms = [form for form, *_ in FORMS if args.only in form]

    rng = random.Random(1)
    bodies = make_bodies(rng)
    chat = [rng.randrange(1 << 17) for _ in range(CHAT_IDS)]

    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[-1]})

    with Rivals(args, chat) as stage:
        nginx = stage.nginx()
        os.sched_setaffinity(nginx, {cores[0]})
        publish(stage, [ids for form in ('4096 ids', '512 ids')
                        for ids, *_ in bodies[form]] + [chat])
        ours = {'by ids': stage.port, 'by text': stage.text,
                'local': stage.local}
        routers = {
            'plain nginx': (nginx, {form: stage.plain for form, *_ in FORMS}),
            'ours': (nginx, {form: ours[where] for form, *_, where in FORMS}),
        }
        for name in () if (args.perf or args.turns
                           or args.ours) else others.PACKAGES:
            started = launch(stage, args.build, name, cores[0])
            if started:
                pid, port = started
                routers[name] = (pid, {form: port for form, *_ in FORMS})

        files = {}
        for form, uri, sglang, _ in FORMS:
            for name in routers:
                own = sglang if name == 'sglang-router' else None
                path = os.path.join(stage.directory, '%s.%s.requests'
                                    % (name, form)).replace(' ', '-')
                sent = [theirs if own else body
                        for _, body, theirs in bodies[form]]
                write_requests(path, own or uri, sent)
                if EXTENDING in form:
                    write_requests(path + BEFORE, own or uri, [
                        {**body, 'messages': body['messages'][:-2]}
                        for body in sent])
                files[name, form] = path

        if args.perf:
            profile(args, stage, routers, files)
            return

        if args.turns:
            turns(args, stage, routers, files)
            return

        for (name, form), values in measure(args, stage, routers,
                                            files).items():
            who, what = ((name, '') if name != 'plain nginx'
                         else ('ours', ', plain nginx'))
            print(json.dumps({'who': who, 'name': 'rivals: ' + form + what,
                              'unit': 'us CPU',
                              'value': statistics.median(values)}))


if __name__ == '__main__':
    main()
