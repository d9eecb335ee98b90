#!/usr/bin/env python3
"""kv-relay and a Redis that fails, comes back, or refuses."""

import shlex
import signal
import sys

from redis import Redis as Connection

import test_relay
from relay import View, removed, stored
from stage import PATIENCE, ROOT, free_port
from processes import Process, wait_until


class Redis(test_relay.Tests):
    """What is asked of it, and what becomes of what it refuses."""

    def redis_empty(self):
        """a Redis that lost everything gets all of it again"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1, 2]))
        epoch = self.comes(relay, 1, 2).epoch
        self.stage.stop_redis(signal.SIGKILL)
        engine.send(stored([3], 2))
        self.stage.start_redis()
        relay.wait_for("redis connected", 2)
        wait_until("a snapshot", lambda: self.stage.redis.exists(
            f"kv-snap:{{{relay.worker}}}"), PATIENCE)
        view = self.comes(relay, 1, 2, 3)
        assert view.epoch == epoch and view.complete
        self.is_complete(relay)
        engine.send(stored([4], 3))
        self.comes(relay, 1, 2, 3, 4)

    def redis_back(self):
        """a Redis that comes back with its data gets what it lacks"""
        self.stage.stop_redis()
        self.stage.start_redis("--appendonly", "yes", "--appendfsync",
                               "always")
        engine = self.engine()
        relay = self.settled(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)
        self.stage.stop_redis(signal.SIGKILL)
        for i in range(2, 100):
            engine.send(stored([i], i - 1))
        self.stage.start_redis("--appendonly", "yes", "--appendfsync",
                               "always")
        view = self.comes(relay, *range(1, 100))
        assert view.pointer["seq"] == "1" and len(view.entries) == 99
        self.is_complete(relay)
        self.stage.stop_redis()

    def redis_behind(self):
        """a Redis that lost the last of it gets that once more"""
        engine = self.engine()
        relay = self.settled(engine)
        for i in range(1, 11):
            engine.send(stored([i], i - 1 or None))
        view = self.comes(relay, *range(1, 11))
        client = self.stage.redis
        log = f"kv-log:{{{relay.worker}}}"
        relay.signal(signal.SIGSTOP)
        entries = client.xrange(log)
        client.delete(log)
        for ident, fields in entries[:4]:
            client.xadd(log, fields, id=ident)
        client.client_kill_filter(_type="normal", skipme=True)
        relay.signal(signal.SIGCONT)
        relay.wait_for("redis connected", 2)
        again = self.comes(relay, *range(1, 11))
        assert again.entries == view.entries

    def ring_full(self):
        """what is too much for the ring is in a snapshot"""
        engine = self.engine()
        relay = self.started(engine, "--memory", "8m")
        engine.send(stored([1]))
        self.comes(relay, 1)
        self.stage.stop_redis(signal.SIGKILL)
        for _ in range(200):
            engine.send(stored(list(range(1000, 2000))))
            engine.send(removed(list(range(1000, 2000))))
        relay.wait_for("ring full")
        engine.send(stored([2], 1))
        self.stage.start_redis()
        relay.wait_for("redis connected", 2)
        wait_until("a snapshot", lambda: self.stage.redis.exists(
            f"kv-snap:{{{relay.worker}}}"), PATIENCE)
        view = self.comes(relay, 1, 2)
        assert view.complete
        self.is_complete(relay)
        assert relay.metric("dropped_total") > 0

    def redis_late(self):
        """a relay may start before its Redis"""
        engine = self.engine()
        engine.send(stored([1]))
        self.stage.stop_redis()
        relay = self.relay(engine)
        relay.wait_for("redis is not there")
        assert relay.http("/ready") == (503, "no connection to redis\n")
        assert relay.http("/health") == (200, "ok\n")
        engine.send(stored([2], 1))
        self.stage.start_redis()
        relay.wait_for("snapshot")
        assert self.comes(relay, 1, 2).complete

    def redis_next(self):
        """of several URLs the next is tried"""
        engine = self.engine()
        relay = self.started(
            engine, "--redis", f"redis://127.0.0.1:{free_port()}",
            "--redis", self.stage.redis_url())
        engine.send(stored([1]))
        self.comes(relay, 1)

    def database(self):
        """a URL's db is where all of it is"""
        engine = self.engine()
        relay = self.relay(engine, url=self.stage.redis_url() + "/3")
        relay.wait_for("snapshot")
        engine.send(stored([1]))
        with Connection(host="127.0.0.1", port=self.stage.redis_port,
                        db=3) as third:
            wait_until("a block", lambda: View(
                third, relay.worker).handles() == [1], PATIENCE)
            for key in ("kv-worker", "kv-lease", "kv-log", "kv-snap"):
                assert third.exists(f"{key}:{{{relay.worker}}}"), key
        assert not self.stage.redis.keys(f"*{relay.worker}*")

    def replica(self):
        """a replica can't be written to: the next URL is tried"""
        port = free_port()
        replica = Process("replica", [
            "redis-server", "--bind", "127.0.0.1", "--port", str(port),
            "--save", "", "--replicaof", "127.0.0.1",
            str(self.stage.redis_port)], self.stage.directory)
        try:
            wait_until("a replica", lambda: b"sync: Finished with success"
                       in replica.log.read_bytes(), PATIENCE)
            engine = self.engine()
            engine.send(stored([1]))
            relay = self.relay(engine, "--redis", self.stage.redis_url(),
                               url=f"redis://127.0.0.1:{port}")
            relay.wait_for("redis connection given up")
            assert "READONLY" in relay.text()
            relay.wait_for("snapshot")
            assert self.comes(relay, 1).complete
        finally:
            replica.stop()

    def _user(self, name, *but):
        """A user with the rights that the README gives it, but for some."""
        readme = (ROOT / "relay" / "README.md").read_text()
        words = shlex.split(readme.split(
            "ACL SETUSER relay on '>PASSWORD' ")[1].split("```")[0].replace(
                "\\\n", " "))
        assert set(but) < set(words), but
        self.stage.redis.execute_command(
            "ACL", "SETUSER", name, "reset", "on", ">pass@w/rd",
            *(word for word in words if word not in but))
        return (f"redis://{name}:pass%40w%2Frd@127.0.0.1:"
                f"{self.stage.redis_port}")

    def secrets(self):
        """a password opens Redis, and is in no log; few rights are enough"""
        url = self._user("relay")
        port = self.stage.redis_port
        engine = self.engine()
        bad = self.relay(engine,
                         url=f"redis://relay:wr0ngpass@127.0.0.1:{port}")
        bad.wait_for("redis connection given up")
        relay = self.started(engine, url=url + "/0")
        engine.send(stored([1]))
        self.comes(relay, 1)
        self.snapshot_now(relay)
        relay.signal(signal.SIGTERM)
        assert relay.ended() == 0
        assert "deregistered=yes" in relay.text()
        for text in (relay.text(), bad.text()):
            assert "pass@w" not in text and "pass%40" not in text
            assert "wr0ngpass" not in text
        assert relay.text().count("NOPERM") == 0

    def _refuses(self, relay, command):
        """The line that says what of it Redis refuses, though it does so
        again and again."""
        relay.wait_for("redis refuses")
        wait_until("it is refused again", lambda: relay.metric(
            "redis_errors_total") >= 2, PATIENCE)
        lines = [line for line in relay.text().splitlines()
                 if 'msg="redis refuses"' in line]
        assert len(lines) == 1 and f"command={command} " in lines[0], lines
        assert "NOPERM" in lines[0] or "WRONGTYPE" in lines[0], lines
        return lines[0]

    def no_trim(self):
        """a log that can't be trimmed is told of once"""
        engine = self.engine()
        relay = self.started(engine, "--snapshot-interval", "16",
                             url=self._user("notrim", "+xtrim"))
        for i in range(1, 200):
            engine.send(stored([i], i - 1 or None))
        relay.wait_for("snapshot", 2)
        engine.send(stored([200], 199))
        self.comes(relay, *range(1, 201))
        self.snapshot_now(relay)
        assert "the log grows" in self._refuses(relay, "XTRIM")
        self.is_complete(relay)

    def no_ask(self):
        """that routers can't ask for snapshots is told of, until they can"""
        engine = self.engine()
        url = self._user("noask", "+getdel")
        relay = self.started(engine, url=url)
        assert "routers ask" in self._refuses(relay, "GETDEL")
        self._user("noask")
        engine.send(stored([1]))
        self.comes(relay, 1)
        self.snapshot_now(relay)
        self._user("noask", "+getdel")
        relay.wait_for("redis refuses", 2)

    def ask_of_another_type(self):
        """and a key of another type in the place of what they ask by"""
        engine = self.engine()
        relay = self.started(engine)
        self.stage.redis.hset(f"kv-snap-ask:{{{relay.worker}}}", "a", "b")
        assert "routers ask" in self._refuses(relay, "GETDEL")

    def password_repeated(self):
        """nor where the answer to it repeats it"""
        self.stage.stop_redis()
        self.stage.start_redis("--rename-command", "AUTH", "")
        for user in ("relay", ""):
            relay = self.relay(self.engine(), url=f"redis://{user}:S3cret@"
                               f"127.0.0.1:{self.stage.redis_port}")
            relay.wait_for("redis connection given up")
            assert 'why="AUTH refused: ERR"' in relay.text()
            assert "S3cret" not in relay.text()
        self.stage.stop_redis()


if __name__ == "__main__":
    sys.exit(test_relay.main(Redis, "relay-redis"))
