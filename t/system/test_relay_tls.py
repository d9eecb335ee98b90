#!/usr/bin/env python3
"""kv-relay and a Redis that speaks TLS."""

import contextlib
import os
import signal
import ssl
import sys
import time

from certificates import Authority
from stage import PATIENCE, Stage, free_port, masked
from processes import wait_until
from relay import BUILD, removed, stored
from wires import Listener, Wire
import test_relay

NAME = "redis.test"
PASSWORD = "p@ss:w/rd%?&"
USER = "relay:" + masked(PASSWORD)
REFUSED = "redis is not there"


class TlsStage(Stage):
    """A Redis with TLS, and certificates of all kinds."""

    def __init__(self, name):
        super().__init__(name)
        self.tls_port = free_port()
        self.authority = Authority(self.directory, "ca")
        self.other = Authority(self.directory, "other")
        names = f"DNS:{NAME},IP:127.0.0.1"
        self.good = self.authority.issue("redis", names)
        self.expired = self.authority.issue("expired", names, expired=True)
        self.strange = self.other.issue("strange", names)
        self.client = self.authority.issue("client", "DNS:relay.test")

    def start_redis(self, *options, client=None):
        """It listens with TLS, and without for the test."""
        super().start_redis(
            "--bind", "127.0.0.1", "127.0.0.2",
            "--unixsocket", str(self.directory / "redis.sock"),
            "--tls-port", str(self.tls_port), "--tls-auth-clients", "no",
            "--tls-cert-file", self.good[0], "--tls-key-file", self.good[1],
            "--tls-ca-cert-file", self.authority.file, *options,
            client=client)

    def redis_url(self):
        """The URL of the relay."""
        return url_of(self.tls_port)


class Tls(test_relay.Tests):
    """One Redis for all."""

    # -------------------------------------------------------------- helpers

    def _ca(self, authority=None):
        return "--redis-ca", (authority or self.stage.authority).file

    def _works(self, *options, url=None):
        """Events, the log, a snapshot: all of it comes."""
        engine = self.engine()
        relay = self.started(engine, *options, url=url)
        engine.send(stored([1, 2]), removed([1]))
        assert self.comes(relay, 2).complete
        return engine, relay

    def _fails(self, why, *options, url=None):
        """Redis isn't reached, and once the log says why."""
        relay = self.relay(self.engine(), *options, url=url)
        wait_until(f"it says {why}", lambda: why in relay.text(), PATIENCE)
        time.sleep(1)           # two tries; more of them make no difference
        # a reset may come before the alert that says why, and is another reason
        said = relay.text().count(f'msg="{REFUSED}"')
        resets = relay.text().count("Connection reset by peer")
        assert 1 <= said <= 1 + 2 * resets, relay.text()
        assert 'msg="redis connected"' not in relay.text()
        assert relay.http("/ready") == (503, "no connection to redis\n")
        return relay

    @contextlib.contextmanager
    def _redis_with(self, **settings):
        """Redis with other settings, for as long."""
        client = self.stage.redis
        names = {name.replace("_", "-"): value
                 for name, value in settings.items()}
        before = {name: client.config_get(name)[name] for name in names}
        for values in (names, before):
            client.execute_command("CONFIG", "SET", *(
                word for pair in values.items() for word in pair))
            if values is names:
                yield

    def _certified(self, files):
        return self._redis_with(tls_cert_file=files[0], tls_key_file=files[1])

    # ---------------------------------------------------------------- verified

    def address(self):
        """a certificate for the address, of an authority that is trusted"""
        _, relay = self._works(*self._ca())
        assert " tls=TLSv1.3" in relay.text()
        relay.wait_ready()

    def name(self):
        """a certificate for the name that is given, which is sent as SNI"""
        self._works(*self._ca(), "--redis-name", NAME)
        with Speaker(self.stage.good) as server:
            self.relay(self.engine(), *self._ca(), "--redis-name", NAME,
                       url=url_of(server.port))
            wait_until("a handshake", lambda: b"PING" in server.got, PATIENCE)
            assert set(server.names) == {NAME}

    def older(self):
        """TLS 1.2 is spoken, too"""
        with self._redis_with(tls_protocols="TLSv1.2"):
            _, relay = self._works(*self._ca())
            assert " tls=TLSv1.2" in relay.text()

    def environment(self):
        """the options come from the environment, and so do the URLs"""
        os.environ["KV_RELAY_REDIS_CA"] = self.stage.authority.file
        try:
            self._works()
        finally:
            del os.environ["KV_RELAY_REDIS_CA"]

    def system(self):
        """by default the system's authorities are trusted, no others"""
        self._fails("the server's certificate can't be verified: ")
        os.environ["SSL_CERT_FILE"] = self.stage.authority.file
        try:
            self._works()
        finally:
            del os.environ["SSL_CERT_FILE"]

    def unverified(self):
        """with --redis-verify off any certificate will do"""
        with self._certified(self.stage.strange):
            self._works("--redis-verify", "off",
                        url=self.stage.redis_url().replace("0.1", "0.2"))

    def user(self):
        """a user, a password and a database; none of it is in the log"""
        self.stage.redis.execute_command(
            "ACL", "SETUSER", "relay", "on", ">" + PASSWORD, "~*", "&*",
            "+@all")
        for url in (url_of(self.stage.tls_port, USER + "@") + "/0",
                    f"unix://{USER}@{self.stage.directory}/redis.sock?db=0"):
            _, relay = self._works(*self._ca(), url=url) if "ss:" in url \
                else self._works(url=url)
            for secret in (PASSWORD, masked(PASSWORD)):
                assert secret not in relay.text()

    # ----------------------------------------------------------------- refused

    def authority(self):
        """another authority's certificate is refused, said once"""
        self._fails("the server's certificate can't be verified: ",
                    *self._ca(self.stage.other))

    def another_address(self):
        """a certificate for another address is refused, said once"""
        self._fails("the server's certificate does not match: ", *self._ca(),
                    url=self.stage.redis_url().replace("0.1", "0.2"))

    def another_name(self):
        """a certificate for another name is refused, said once"""
        self._fails("the server's certificate does not match: ", *self._ca(),
                    "--redis-name", "other.test")

    def expired(self):
        """an expired certificate is refused, said once"""
        with self._certified(self.stage.expired):
            self._fails("certificate has expired", *self._ca())

    def nothing_said(self):
        """a server that can't be verified is told nothing, no password"""
        with Speaker(self.stage.strange) as server:
            self._fails("can't be verified", *self._ca(),
                        url=url_of(server.port, USER + "@"))
            assert not server.got, server.got

    def plain_server(self):
        """a server without TLS is named as such"""
        self._fails(" TLS", *self._ca(),
                    url=url_of(self.stage.redis_port))

    def plain_relay(self):
        """a relay without TLS is not served by one with it"""
        self._fails("why=", url=f"redis://127.0.0.1:{self.stage.tls_port}")

    def silent_server(self):
        """a server that says nothing stops nothing: it is given up"""
        with Deaf() as server:
            relay = self.relay(self.engine(), *self._ca(),
                               url=url_of(server.port))
            wait_until("it is connected", lambda: server.taken, PATIENCE)
            assert relay.http("/ready")[0] == 503
            before = relay.ticks()
            relay.wait_for(REFUSED)
            assert relay.ticks() - before < 100     # a second of them
            assert "no answer in the TLS handshake" in relay.text()

    # ------------------------------------------------------ client certificates

    def demanded(self):
        """a server that demands a client certificate gets it"""
        with self._redis_with(tls_auth_clients="yes"):
            self._fails("demands a client certificate", *self._ca())
            self._fails("unknown ca", *self._ca(), "--redis-cert",
                        self.stage.strange[0], "--redis-key",
                        self.stage.strange[1])
            self._works(*self._ca(), "--redis-cert", self.stage.client[0],
                        "--redis-key", self.stage.client[1])

    def files(self):
        """files that are no good are named at the start"""
        good, bad = self.stage.client, str(self.stage.directory / "san")
        for options, why in (
                (("--redis-ca", "/nowhere"), "--redis-ca: /nowhere: No such"),
                (("--redis-ca", good[1]), "has no certificate in the PEM"),
                (("--redis-cert", bad, "--redis-key", good[1]),
                 f"--redis-cert: {bad}: No such file"),
                (("--redis-cert", good[1], "--redis-key", good[1]),
                 "has no certificate in the PEM"),
                (("--redis-cert", good[0], "--redis-key",
                  self.stage.good[1]), "has not the certificate's key")):
            relay = self.relay(self.engine(), *options)
            assert relay.ended() == 1
            assert why in relay.text(), relay.text()

    # ----------------------------------------------------------------- outages

    def next_url(self):
        """of several URLs the next one is tried"""
        self._works(*self._ca(), "--redis",
                    ",".join(map(url_of, (self.stage.redis_port, free_port(),
                                          self.stage.tls_port))))

    def next_address(self):
        """of a name's addresses the next one is tried, TLS or not"""
        port = free_port()
        with (Wire("127.0.0.2", port, self.stage.redis_port),
              Wire("127.0.0.1", port, self.stage.tls_port),
              preloaded(BUILD / "names.so")):
            _, relay = self._works(*self._ca(), "--redis-name", NAME,
                                   url=url_of(port, host="two.test"))
            assert REFUSED not in relay.text()

    def slow_name(self):
        """a name that takes long to look up is no server that is silent"""
        with preloaded(BUILD / "names.so"):
            relay = self.relay(self.engine(), *self._ca(), "--redis-name",
                               NAME, url=url_of(self.stage.tls_port,
                                                host="localhost"))
        relay.wait_for("redis connected")
        assert REFUSED not in relay.text()

    def restart(self):
        """a server that comes back, renewed, gets what it lacks"""
        engine, relay = self._works(*self._ca())
        self.stage.stop_redis(signal.SIGKILL)
        engine.send(stored([3], 2))
        relay.wait_for(REFUSED)
        self.stage.authority.issue("redis", f"DNS:{NAME},IP:127.0.0.1")
        self.stage.start_redis()
        relay.wait_for("redis connected", 2)
        wait_until("a snapshot", lambda: self.stage.redis.exists(
            f"kv-snap:{{{relay.worker}}}"), PATIENCE)
        assert self.comes(relay, 2, 3).complete

    def renewed_authority(self):
        """the authorities are read again with each connection"""
        trusted = self.stage.directory / "trusted.pem"
        trusted.write_bytes(open(self.stage.other.file, "rb").read())
        relay = self._fails("can't be verified", "--redis-ca", str(trusted))
        trusted.write_bytes(open(self.stage.authority.file, "rb").read())
        relay.wait_for("redis connected")

    def killed_connections(self):
        """connections that are killed come back, and cost no event"""
        engine, relay = self._works(*self._ca())
        for i in range(3, 60):
            engine.send(stored([i], i - 1))
            if i % 20 == 0:
                self.stage.redis.client_kill_filter(_type="normal",
                                                    skipme=True)
                time.sleep(0.5)
        assert self.comes(relay, *range(2, 60)).complete

    def pieces(self):
        """bytes may come in pieces, and slowly, in the handshake as well"""
        with Wire("127.0.0.1", 0, self.stage.tls_port, pieces=4000) as wire:
            engine, relay = self._works(*self._ca(), url=url_of(wire.port))
            for i in range(40):
                engine.send(stored(list(range(1000 + i * 1000,
                                              2000 + i * 1000))))
            assert self.comes(relay, 2, *range(1000, 41000)).complete

    # ---------------------------------------------------------------- a router

    def exact(self):
        """a router that speaks TLS, too, has block for block what it says"""
        stage = self.stage
        engine = self.engine()
        stage.start_nginx({}, url=f"{stage.redis_url()} "
                          f"ssl_trusted_certificate={stage.authority.file}")
        try:
            stage.wait_subscribed()
            relay = self.started(engine, *self._ca())
            held = []
            for i in range(200):
                engine.send(stored([i * 2 + 1, i * 2 + 2],
                                   held[-1] if held else None))
                held += [i * 2 + 1, i * 2 + 2]
                if i == 100:
                    stage.redis.client_kill_filter(_type="normal", skipme=True)
                if i % 7 == 6:
                    engine.send(removed([held.pop()]))
            self.comes(relay, *held)
            seq = int(self.view(relay.worker).seq)
            wait_until("all is applied", lambda: stage.workers().get(
                relay.worker, {}).get("seq") == seq, PATIENCE)
            stage.wait_confidence(relay.worker, "EXACT")
            assert set(stage.dump().holdings()[relay.worker, 0]) == set(held)
            stage.check_log("redis closed the connection")
        finally:
            stage.stop_nginx()


# ---------------------------------------------------------------- other servers

class Deaf(Listener):
    """Takes connections, and says nothing."""

    def __init__(self):
        super().__init__()
        self.taken = []

    def serve(self, client):
        """It stays open."""
        self.taken.append(client)


class Speaker(Listener):
    """Speaks TLS, and keeps what it is told."""

    def __init__(self, files):
        super().__init__()
        self.got, self.names = b"", []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*files)
        self._context.sni_callback = lambda _, name, __: self.names.append(
            name)

    def serve(self, client):
        """One message of it."""
        client.settimeout(PATIENCE)
        with contextlib.suppress(OSError), client:
            with self._context.wrap_socket(client,
                                           server_side=True) as speaking:
                self.got += speaking.recv(4096)


def url_of(port, credentials="", host="127.0.0.1"):
    """A URL with TLS."""
    return f"rediss://{credentials}{host}:{port}"


@contextlib.contextmanager
def preloaded(library):
    """For processes that are started meanwhile."""
    assert library.is_file(), f"{library} isn't there: build it first"
    more = {"LD_PRELOAD": str(library),
            "ASAN_OPTIONS": "verify_asan_link_order=0"}
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


if __name__ == "__main__":
    sys.exit(test_relay.main(Tls, "relay-tls", TlsStage))
