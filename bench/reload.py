#!/usr/bin/python3
# Copyright (C) the nginx-kv-router authors

"""How long nginx reloads with five models, and without; the master's memory.

    reload.py [--build DIR] [--reloads N]

A real nginx with one worker process, and with five zones, each with a model of
its own: copies of t/vectors/model whose router.json says another name.  A
reload lasts from its signal until the new process is there.  Before the models
are taken over for the first time, their files must be two seconds old.  Models
are changed by a name that is new each time: a reload loads them, frees the old.

One run prints one line of JSON a figure, as run.py reads them: the median and
the longest of all reloads, by the clock, which others on the machine lengthen,
and of the processor time of the master.  The memory that is resident in the
master is looked at after half of the reloads, when the old configuration and
the new one have had their room beside one another many times, and after all.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True      # nothing is made outside of build/

from latency import HERE, LUA, figure, until                    # noqa: E402

ZONES = 5
POLL = 0.0005
SETTLED = 2.5                       # seconds, see kvr_model_file.h
MODEL = os.path.join(HERE, '../t/vectors/model')

CONF = """
daemon off; worker_processes 1; pid nginx.pid; error_log error.log notice;
load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
load_module {build}/ngx_http_kv_router_module.so;
events {{ }}
http {{
    access_log off; client_body_temp_path tmp; proxy_temp_path tmp;
    fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
{zones}
    lua_package_path "{lua}/?.lua;;";
    init_by_lua_block {{
        for i = 0, {last} do
            require("resty.kv_router").new("z" .. i, {{ tokenizer = "{by}" }})
        end
    }}
}}
"""


class Nginx:
    """One in a directory of its own."""

    def __init__(self, folder, build, models):
        os.mkdir(folder)
        self.models = []
        zones = ''

        for i in range(ZONES):
            zones += f'    kv_router_zone zone=z{i}:8m;\n'

            if models:
                to = os.path.join(folder, f'model{i}')
                shutil.copytree(MODEL, to)
                self.models.append(to)

                zones += f'    kv_router_model z{i} {to};\n'

        self.rename('')

        with open(os.path.join(folder, 'nginx.conf'), 'w',
                  encoding='utf-8') as file:
            file.write(CONF.format(build=os.path.abspath(build), lua=LUA,
                                   zones=zones, last=ZONES - 1,
                                   by='local' if models else 'none'))

        self.process = subprocess.Popen([
            'nginx', '-p', folder + '/', '-c', 'nginx.conf', '-e',
            'error.log'], stderr=subprocess.DEVNULL)
        until('nginx', self.children, POLL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def children(self):
        """The newest process is the largest number."""
        pid = self.process.pid

        with open(f'/proc/{pid}/task/{pid}/children', encoding='ascii') as f:
            return {int(child) for child in f.read().split()}

    def cpu(self):
        """Seconds of processor time of the master."""
        with open(f'/proc/{self.process.pid}/schedstat',
                  encoding='ascii') as file:
            return int(file.read().split()[0]) / 1e9

    def rename(self, name):
        """Gives all models names of their own, which end so."""
        for folder in self.models:
            path = os.path.join(folder, 'router.json')

            with open(path, encoding='utf-8') as file:
                router = json.load(file)

            with open(path, 'w', encoding='utf-8') as file:
                json.dump({**router, 'model': folder + name}, file)

    def memory(self):
        """KB of the master that are resident."""
        with open(f'/proc/{self.process.pid}/status',
                  encoding='ascii') as file:
            return next(int(line.split()[1]) for line in file
                        if line.startswith('VmRSS:'))

    def reload(self):
        """Seconds: by the clock, and of the master's processor time."""
        before = self.children()
        start, spent = time.monotonic(), self.cpu()

        self.process.send_signal(signal.SIGHUP)
        until('a new process', lambda: self.children() - before, POLL)
        took = time.monotonic() - start
        until('the old one ends', lambda: len(self.children()) == 1, POLL)

        return took, self.cpu() - spent


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--build', default=os.path.join(HERE, '../build'))
    parser.add_argument('--reloads', type=int, default=20)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        for what, models, changed in (
                ('without models', False, False),
                ('with five models', True, False),
                ('with five changed models', True, True)):
            with Nginx(os.path.join(folder, what.replace(' ', '-')),
                       args.build, models) as nginx:
                time.sleep(SETTLED if models else 0)
                nginx.reload()
                times, sizes = [], []

                for i in range(args.reloads):
                    if changed:
                        nginx.rename(f' {i}')

                    times.append(nginx.reload())
                    sizes.append(nginx.memory())

            for by, i in (('', 0), (', processor time', 1)):
                figure(f'nginx: a reload {what}{by}', 'ms', 1000
                       * statistics.median(t[i] for t in times))
                figure(f'nginx: a reload {what}{by}, the longest', 'ms', 1000
                       * max(t[i] for t in times))

            half = sizes[(args.reloads - 1) // 2]
            figure(f'nginx: reloads {what}, the master', 'MB', half / 1024)
            figure(f'nginx: reloads {what}, the master grows by', 'KB',
                   sizes[-1] - half)


if __name__ == '__main__':
    main()
