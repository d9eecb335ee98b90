"""All of it: engines, relays, Redis and nginx, as one that faults act on."""

import contextlib
import json

import redis

from processes import DemoError
from stage import NOBODY, PROCESSES, wait_until

from .faults import kill_clients
from .fleet import Fleet
from .oracle import Oracle

KEEP = ("--appendonly", "yes", "--appendfsync", "everysec")


class Plant:
    """What faults and the referee look at."""

    errors = DemoError

    def __init__(self, stage, loop, seed, rate, kinds):
        self.stage = stage
        stage.redis = redis.Redis(host="127.0.0.1", port=stage.redis_port,
                                  client_name="test", socket_timeout=5)
        for name in ("redis", "nginx"):
            stage.clock(name)
        self.start_redis()
        self.fleet = Fleet(loop, stage.redis_port, stage.directory, seed,
                           rate, kinds)
        self.oracle = Oracle(stage.redis_port, self.fleet.engines.values())
        stage.start_nginx(dict.fromkeys(self.fleet.engines, NOBODY))
        self.fleet.start()

    def stop(self):
        """Ends what the stage doesn't."""
        self.fleet.stop()
        self.oracle.stop()

    def start_redis(self):
        """Starts Redis with what it has on disk."""
        self.stage.start_redis(*KEEP)

    def redis_data(self):
        """Where Redis has its data."""
        return self.stage.directory / "appendonlydir"

    def asked(self, command, *args):
        """What Redis answers; None while it is away."""
        with contextlib.suppress(redis.RedisError):
            return getattr(self.stage.redis, command)(*args)

    def kill_clients(self, kind):
        """CLIENT KILL of all of a kind."""
        kill_clients(self.stage.redis, kind)

    def writers(self):
        """The pids of the processes of nginx that hold a lease."""
        lease = wait_until("the status",
                           lambda: self.stage.status()["lease"])
        return {lease["pid"]} & self.stage.children()

    def workers(self):
        """What /workers says of the fleet, once; OSError."""
        known = {worker["worker_id"]: worker for worker in json.loads(
            self.stage.call("GET", "/kv/workers"))}
        return {name: known[name] for name in self.fleet.engines
                if name in known}

    def processes(self):
        """How many processes of nginx there have to be."""
        return PROCESSES
