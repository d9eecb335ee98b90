#!/usr/bin/env python3
"""Redis behind Sentinel, followed over failovers; Redis Cluster; TAP."""

import signal
import sys

import redis

import test_relay
from certificates import Authority
from relay import stored
from stage import PATIENCE, Process, Stage, free_port, wait_until

MASTER = "engines/1"                    # %2F in URLs
URL_MASTER = "engines%2F1"


class Tests(test_relay.Tests):
    """A master, its replica and a Sentinel; a router and a relay."""

    def __init__(self, stage):
        super().__init__(stage)
        self.ports = [stage.redis_port, free_port()]
        self.servers = [None, None]
        self.sentinel_port, self.dead = free_port(), free_port()
        self.handles = []
        self.start_server(0)
        self.start_server(1, "--replicaof", "127.0.0.1", str(self.ports[0]))
        for client in map(self.client, (0, 1)):
            client.execute_command("ACL", "SETUSER", "me", "on", ">p@ss",
                                   "~*", "&*", "+@all")
        conf = stage.directory / "sentinel.conf"
        conf.write_text(
            f"port {self.sentinel_port}\nbind 127.0.0.1\n"
            f"sentinel monitor {MASTER} 127.0.0.1 {self.ports[0]} 1\n"
            f"sentinel down-after-milliseconds {MASTER} 1000\n"
            f"sentinel failover-timeout {MASTER} 3000\n")
        self.sentinel_server = Process("sentinel", [
            "redis-server", str(conf), "--sentinel"], stage.directory)
        self.sentinel = redis.Redis(port=self.sentinel_port)
        wait_until("the Sentinel knows both", lambda: safely(
            lambda: len(self.sentinel.execute_command(
                "SENTINEL", "replicas", MASTER)) == 1), PATIENCE)
        self.fleet = self.fleet_relay = None

    def close(self):
        """Ends the servers."""
        for server in (self.sentinel_server, *self.servers):
            if server is not None:
                server.stop()

    def start_server(self, i, *options):
        """A Redis; a replica asks for its data at once."""
        self.servers[i] = Process(f"redis-{i}", [
            "redis-server", "--bind", "127.0.0.1", "--port",
            str(self.ports[i]), "--save", "", "--repl-diskless-sync-delay",
            "0", *options], self.stage.directory)
        wait_until("redis answers", lambda: safely(self.client(i).ping),
                   PATIENCE)

    def client(self, i):
        """A client of one of the two."""
        return redis.Redis(port=self.ports[i])

    def url(self, host=None, master=URL_MASTER, user=""):
        """URLs of a Sentinel that is dead, and of this one."""
        live = host or f"127.0.0.1:{self.sentinel_port}"
        return (f"redis-sentinel://{user}127.0.0.1:{self.dead}/{master}",
                f"redis-sentinel://{user}{live}/{master}")

    def start(self, *urls):
        """A new nginx that is to reach Redis in that way."""
        self.stage.stop_nginx()
        self.stage.start_nginx({}, url=" ".join(urls))

    def said(self, text, log=None):
        """Waits until the log of nginx, or another, has this."""
        read = log or self.stage.log
        wait_until(f"it is said: {text}", lambda: text in read(), PATIENCE)

    def grows(self):
        """One more block of the engine comes to the router, exactly."""
        self.handles.append(len(self.handles) + 1)
        self.fleet.send(stored([self.handles[-1]], self.handles[-1] - 1
                               or None))
        worker = self.fleet_relay.worker

        def exact():
            known = self.stage.workers().get(worker)
            return known and known["confidence"] == "EXACT" and known[
                "held"] == [{"dp_rank": 0, "blocks": len(self.handles)}]

        try:
            wait_until("the router has all blocks, exactly", exact,
                       2 * PATIENCE)
        except Exception as err:
            raise AssertionError(self.stage.workers().get(worker)) from err

    def is_master(self, i):
        """Waits until the Sentinel says so."""
        want = [b"127.0.0.1", str(self.ports[i]).encode()]
        wait_until(f"{self.ports[i]} is the master", lambda: (
            self.sentinel.execute_command(
                "SENTINEL", "get-master-addr-by-name", MASTER) == want),
            2 * PATIENCE)
        wait_until("it says so itself", lambda: self.client(i).info(
            "replication")["role"] == "master", PATIENCE)

    # ---------------------------------------------------------------- tests

    def by_sentinel(self):
        """router and relay ask a Sentinel for the master, after a dead one"""
        self.start(*self.url(user="me:p%40ss@"))
        self.stage.wait_subscribed()
        self.fleet = self.engine()
        self.fleet_relay = self.relay(
            self.fleet, url=",".join(self.url(user="me:p%40ss@")))
        self.fleet_relay.wait_for("snapshot")
        self.grows()
        self.said(f'redis master is "127.0.0.1:{self.ports[0]}"')
        for log in (self.stage.log(), self.fleet_relay.text()):
            assert "p@ss" not in log and "p%40ss" not in log

    def master_dies(self):
        """the master dies: both follow to the replica that takes over"""
        wait_until("the replica has it all", lambda: self.client(0).info(
            "replication")["slave0"]["lag"] <= 1, PATIENCE)
        self.servers[0].signal(signal.SIGKILL)
        self.servers[0].stop()
        self.is_master(1)
        self.stage.redis = self.client(1)
        self.said(f'redis master is "127.0.0.1:{self.ports[1]}"')
        self.stage.wait_subscribed()
        self.grows()

    def master_hands_over(self):
        """a master that becomes a replica while it lives: both leave it"""
        self.start_server(0, "--replicaof", "127.0.0.1", str(self.ports[1]))
        self.client(0).execute_command("ACL", "SETUSER", "me", "on", ">p@ss",
                                       "~*", "&*", "+@all")
        wait_until("it follows", lambda: self.client(0).info("replication")[
            "master_link_status"] == "up", PATIENCE)
        wait_until("the Sentinel knows it, and changes the master", lambda:
                   safely(lambda: self.sentinel.execute_command(
                       "SENTINEL", "failover", MASTER)), 2 * PATIENCE)
        self.is_master(0)
        self.stage.redis = self.client(0)
        known = self.stage.log().count(
            f'redis master is "127.0.0.1:{self.ports[0]}"')
        assert known <= 2, self.stage.log()
        wait_until("events are heard from it", lambda: self.client(
            0).pubsub_numpat() >= 1, PATIENCE)
        self.stage.wait_subscribed()
        self.grows()

    def unknown_master(self):
        """a Sentinel that knows no such master says so, in both logs"""
        self.start(self.url(master="nobody")[1])
        self.said('the Sentinel knows no master: "nobody"')
        relay = self.relay(self.engine(), url=self.url(master="nobody")[1])
        self.said("the Sentinel knows no master", relay.text)

    def sentinel_as_redis(self):
        """the URL of a Redis that is a Sentinel, and the other way round"""
        url = f"redis://127.0.0.1:{self.sentinel_port}"
        self.start(url)
        self.said("redis can't be used: \"it is a Sentinel: write its URL as")
        relay = self.relay(self.engine(), url=url)
        self.said("it is a Sentinel", relay.text)
        url = self.url(f"127.0.0.1:{self.ports[0]}")[1]
        self.start(url)
        self.said("the Sentinel refused: \"ERR unknown command")
        relay = self.relay(self.engine(), url=url)
        self.said("the Sentinel refused", relay.text)

    def stale_sentinel(self):
        """a replica that a Sentinel names as the master is refused"""
        conf = self.stage.directory / "stale.conf"
        port = free_port()
        # of two, which never agree; by a name that the other does not know
        conf.write_text(f"port {port}\nbind 127.0.0.1\n"
                        f"sentinel monitor stale 127.0.0.1 {self.ports[1]} 2\n")
        stale = Process("stale", ["redis-server", str(conf), "--sentinel"],
                        self.stage.directory)
        try:
            wait_until("it answers", lambda: safely(
                redis.Redis(port=port).ping), PATIENCE)
            url = self.url(f"127.0.0.1:{port}", "stale")[1]
            self.start(url)
            self.said("redis can't be used: \"it is a replica")
            relay = self.relay(self.engine(), url=url)
            self.said("it is a replica", relay.text)
        finally:
            stale.stop()

    def by_tls(self):
        """a Sentinel and a master with TLS: both are verified"""
        folder = self.stage.directory
        authority = Authority(folder, "ca")
        authority.issue("redis", "IP:127.0.0.1")
        Authority(folder, "other")
        tls = ["tls-cert-file", folder / "redis.pem", "tls-key-file",
               folder / "redis.key", "tls-ca-cert-file", folder / "ca.pem",
               "tls-auth-clients", "no", "tls-replication", "yes"]
        ports = [free_port() for _ in range(3)]
        conf = folder / "tls.conf"
        conf.write_text(
            f"port 0\ntls-port {ports[2]}\nbind 127.0.0.1\n" + "".join(
                f"{name} {value}\n" for name, value in zip(
                    tls[::2], tls[1::2]))
            + f"sentinel monitor {MASTER} 127.0.0.1 {ports[1]} 1\n")
        servers = [Process("tls", [
            "redis-server", "--bind", "127.0.0.1", "--port", str(ports[0]),
            "--tls-port", str(ports[1]), "--save", "", "--dbfilename",
            "tls.rdb", *(text for name, value in zip(tls[::2], tls[1::2])
                         for text in (f"--{name}", str(value)))], folder),
                   Process("tls-sentinel", ["redis-server", str(conf),
                                            "--sentinel"], folder)]
        try:
            client = redis.Redis(port=ports[0])
            wait_until("it answers", lambda: safely(client.ping), PATIENCE)
            url = f"rediss-sentinel://127.0.0.1:{ports[2]}/{URL_MASTER}"
            self.start(url, f"ssl_trusted_certificate={folder}/ca.pem")
            self.stage.wait_subscribed()
            relay = self.relay(self.engine(), "--redis-ca",
                               str(folder / "ca.pem"), url=url)
            relay.wait_for("redis connected")
            wait_until("its worker is there", lambda: relay.worker
                       in self.stage.workers(), PATIENCE)
            self.start(url, f"ssl_trusted_certificate={folder}/other.pem")
            self.said("certificate can't be verified")
        finally:
            for server in servers:
                server.stop()

    def cluster(self):
        """a Redis Cluster is refused in words, even to who may not ask INFO"""
        nodes, ports = [], []
        for i in range(2):
            ports.append(free_port(10000))
            nodes.append(Process(f"node-{i}", [
                "redis-server", "--bind", "127.0.0.1", "--port",
                str(ports[i]), "--save", "", "--dbfilename", f"node-{i}.rdb",
                "--cluster-enabled", "yes",
                "--cluster-config-file", f"nodes-{i}.conf"],
                self.stage.directory))
        try:
            first, second = (redis.Redis(port=port) for port in ports)
            wait_until("they answer", lambda: safely(
                lambda: first.ping() and second.ping()), PATIENCE)
            url = f"redis://127.0.0.1:{ports[0]}/3"
            words = "it is a Redis Cluster, which is not supported: use one"
            self.start(url)
            self.said(f'redis can\'t be used: "{words}')
            relay = self.relay(self.engine(), url=url)
            self.said(words, relay.text)
            second.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
            first.execute_command("CLUSTER", "MEET", "127.0.0.1",
                                  str(ports[1]))
            wait_until("the first one knows the slots of the second", lambda:
                       moved(first), 2 * PATIENCE)
            first.execute_command("ACL", "SETUSER", "default", "-info")
            self.start(url.removesuffix("/3"))
            self.said(f"members can't be read, \"kv-workers\": \"{words}")
        finally:
            for node in nodes:
                node.stop()

    def wrong_urls(self):
        """URLs of Sentinels that are wrong are refused at the start"""
        self.start(f"redis://127.0.0.1:{self.ports[0]}")
        for url in ("redis-sentinel://127.0.0.1:1",
                    "redis-sentinel://127.0.0.1:1/",
                    "redis-sentinel://127.0.0.1:1/a,b"):
            self.stage.refused_reload(
                "the URL has no name of a master",
                f"redis://127.0.0.1:{self.ports[0]}", url)
            relay = self.relay(self.engine(), url=url.replace(",", "%2C"))
            if "," not in url:
                assert relay.ended() == 2
                assert "has no name of a master" in relay.text(), relay.text()


def moved(client):
    """Does the node send its clients to another one?"""
    try:
        client.sscan("kv-workers")
    except redis.ResponseError as err:
        return "MOVED" in str(err)
    return False


def safely(call):
    """What a call returns; None when Redis is not there, or says no."""
    try:
        return call()
    except (redis.ConnectionError, redis.ResponseError):
        return None


def main():
    with Stage("sentinel") as stage:
        tests = Tests(stage)
        try:
            return stage.run([
                tests.by_sentinel,
                tests.master_dies,
                tests.master_hands_over,
                tests.unknown_master,
                tests.sentinel_as_redis,
                tests.stale_sentinel,
                tests.by_tls,
                tests.cluster,
                tests.wrong_urls])
        finally:
            tests.after()
            tests.close()


if __name__ == "__main__":
    sys.exit(main())
