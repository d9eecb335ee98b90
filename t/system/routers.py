"""Several nginx, one fleet: routers of a group on one Redis, engines that hold
requests or answer them after some time, and what each router says of them.
"""

import collections
import contextlib
import http.client
import json
import random
import re
import threading
import time
from pathlib import Path

import broken
import stage
from stage import PATIENCE, wait_until

TIMEOUT = "3s"                  # until a silent peer is gone
COUNTS = ("active_requests", "peers_requests")
# a message of a router
Told = collections.namedtuple(
    "Told", "version router process clock about rows adds ends")


class Engine(broken.Engine):
    """An engine that notes when requests begin and end."""

    def __init__(self, name):
        self.events = []                # times, monotonic
        super().__init__(name)
        self.mode = "held"

    def _timed(self, peer):
        self.events.append(time.monotonic())
        try:
            time.sleep(random.uniform(1, 5))
            return self._ok(peer)
        finally:
            self.events.append(time.monotonic())


class Router(stage.Stage):
    """One nginx of the group; `first` has the Redis that it goes to."""

    block_size = stage.BLOCK_SIZE

    def __init__(self, name, first=None):
        super().__init__(f"sync-{name}")
        self.name = name
        self.sync = f"name={name} timeout={TIMEOUT}"
        if first:
            self.redis_port, self.redis = first.redis_port, first.redis

    def _write_conf(self, engines, policy, url, log):
        super()._write_conf(engines, policy, url, log)
        path = self.directory / "nginx.conf"
        conf = path.read_text()
        for old, new in (
                (f"kv_router_redis  main {url};",
                 f"kv_router_redis  main {url};\n"
                 f"    kv_router_sync   main {self.sync};"),
                (f"block_size={stage.BLOCK_SIZE}",
                 f"block_size={self.block_size}"),
                ('tokenizer = "remote"', 'tokenizer = "none"')):
            assert old in conf, old
            conf = conf.replace(old, new)
        path.write_text(re.sub(r"(kv_router_worker main .*);",
                               r"\1 events=on;", conf))

    def ask(self, prompt=None):
        """One completion; its status."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                timeout=PATIENCE)
        try:
            connection.request("POST", "/v1/completions", json.dumps({
                "prompt": prompt or [random.randrange(1 << 20)
                                     for _ in range(256)]}))
            response = connection.getresponse()
            response.read()
            return response.status
        finally:
            connection.close()

    def peers(self):
        """The other routers by name, as this one has them."""
        return {peer["name"]: peer
                for peer in self.status()["sync"]["peers"]}

    def hears(self, *names):
        """Waits until these are all the peers that there are."""
        try:
            wait_until(f"{self.name} hears {names}", lambda: set(
                self.peers()) == set(names), PATIENCE)
        except Exception as err:
            raise AssertionError(f"{err}: {self.peers()}") from err

    def load(self, status=None):
        """{worker: (own requests, those of peers)}."""
        return {worker["worker_id"]: tuple(
            sum(row[count] for row in worker["load"]) for count in COUNTS)
            for worker in (status or self.status())["workers"]}

    def said(self, what, times=1, most=None):
        """Waits until the log has that so often; up to `most`."""
        wait_until(f"{self.name} says {what}", lambda: len(re.findall(
            what, self.log())) >= times, PATIENCE)
        found = len(re.findall(what, self.log()))
        assert times <= found <= (most or times), self.log()

    def every(self):
        """All processes of nginx.  The master is the first, so that who kills
        them all gets no new ones."""
        return [self.master(), *self.children()]

    def leader(self):
        """Waits for the process that hears the peers; returns its pid."""
        return wait_until(f"a process of {self.name} leads", self._leader,
                          PATIENCE)

    def _leader(self):
        ports = {int(client["addr"].rsplit(":", 1)[1])
                 for client in self.redis.client_list(_type="pubsub")
                 if int(client["sub"])}
        inodes = set()
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if int(fields[1].split(":")[1], 16) in ports:
                inodes.add(f"socket:[{fields[9]}]")
        for pid in self.children():
            with contextlib.suppress(OSError):
                if any(str(fd.readlink()) in inodes
                       for fd in Path(f"/proc/{pid}/fd").iterdir()):
                    return pid
        return None


class Held:
    """Requests that were sent and are not over."""

    def __init__(self, router, n, statuses=(200,)):
        self.threads = []
        self.wrong = []
        for _ in range(n):
            self.threads.append(threading.Thread(
                target=self._ask, args=(router, statuses), daemon=True))
            self.threads[-1].start()

    def _ask(self, router, statuses):
        try:
            status = router.ask()
        except (OSError, http.client.HTTPException):
            status = 0                  # nginx has left
        if status not in statuses:
            self.wrong.append(status)

    def over(self):
        """Waits for their ends, all of which must be good."""
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a request does not end"
        assert not self.wrong, self.wrong


class Group:
    """Routers, and the engines that all of them have."""

    policy = "least_loaded"

    def __init__(self, names, engines=("w0", "w1")):
        self.engines = [Engine(name) for name in engines]
        self.first = Router(names[0])
        self.routers = [self.first, *(Router(name, self.first)
                                      for name in names[1:])]

    def __enter__(self):
        self.first.__enter__()
        self.first.start_redis()
        for router in self.routers:
            self.start(router)
        self.meet()
        return self

    def __exit__(self, *_):
        for engine in self.engines:
            engine.die()
        for router in reversed(self.routers):
            router.__exit__()

    def start(self, router, **options):
        """Starts a router of these engines."""
        router.start_nginx({engine.name: engine.address
                            for engine in self.engines}, **{
                                "policy": self.policy, **options})

    def meet(self):
        """Waits until each hears all others."""
        for router in self.routers:
            router.hears(*(other.name for other in self.routers
                           if other is not router))

    def hold(self, router, n, mode="held", **options):
        """Requests that engines hold until release()."""
        for engine in self.engines:
            engine.mode = mode
        before = self.open()
        held = Held(router, n, **options)
        wait_until("the engines have them", lambda: self.open() >= before + n,
                   PATIENCE)
        return held

    def open(self):
        """How many requests the engines have."""
        return sum(engine.open for engine in self.engines)

    def release(self, *held):
        """Ends all that are held; then there is no load anywhere."""
        for engine in self.engines:
            engine.release()
        for some in held:
            some.over()
        self.quiet()

    def exact(self, *routers):
        """Waits until these, or all, have what the engines have open."""
        for router in routers or self.routers:
            def right(router=router):
                load = router.load()
                return all(sum(load[engine.name]) == engine.open
                           for engine in self.engines)
            try:
                wait_until(f"{router.name} has all", right, PATIENCE)
            except Exception as err:
                raise AssertionError(
                    f"{err}: {router.load()}, peers {router.peers()}, open "
                    + str([engine.open for engine in self.engines])) from err

    def quiet(self, *routers):
        """Waits until every counter of these, or of all, is 0."""
        for router in routers or self.routers:
            router.check_idle()
