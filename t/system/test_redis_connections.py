#!/usr/bin/python3
"""Every way to reach Redis: TLS, sockets, users, names, several URLs; TAP."""

import random
import re
import shlex
import socket
import socketserver
import sys
import threading

import redis

from certificates import Authority
from names import Names
from stage import (NOBODY, PATIENCE, PROCESSES, ROOT, SEED, SHARDS, Process,
                   Stage, free_port, masked, milliseconds, wait_until)
from traffic import Cache, Loop, Stream, make_prompts
from wires import Wire

PASSWORD = "p@ss:w/rd%?&"
NAME = "redis.test"
SECRETS = (PASSWORD, masked(PASSWORD), "0pen-sEsAmE")
USER = "router:" + masked(PASSWORD)


class Play:
    """What all tests look at."""

    def __init__(self, stage):
        self.stage = stage
        self.rng = random.Random(SEED)
        self.prompts = make_prompts(self.rng, 2, 1, 20)
        self.tls_port = free_port()
        self.socket = str(stage.directory / "redis.sock")
        self.number = 0
        self.certify()
        self.acl("router", documented_acl())
        stage.start_redis(
            "--bind", "127.0.0.1", "127.0.0.2", "-::1",
            "--unixsocket", self.socket, "--aclfile", self.path("acl"),
            "--tls-port", str(self.tls_port), "--tls-auth-clients", "no",
            "--tls-cert-file", self.path("redis.pem"),
            "--tls-key-file", self.path("redis.key"),
            "--tls-ca-cert-file", self.path("ca.pem"))

    def path(self, name):
        """A file of the test."""
        return str(self.stage.directory / name)

    def acl(self, user, rules):
        """The users that Redis knows: the default one, and another."""
        (self.stage.directory / "acl").write_text(
            "user default on nopass ~* &* +@all\n"
            f"user {user} on >{PASSWORD} {rules}\n")

    def certify(self):
        """Two authorities; certificates of the first for Redis and nginx."""
        authority = Authority(self.stage.directory, "ca")
        authority.issue("redis", f"DNS:{NAME},IP:127.0.0.1")
        authority.issue("client", "DNS:router.test")
        Authority(self.stage.directory, "other")

    def start(self, url):
        """A new nginx that is to reach Redis in that way."""
        self.stage.stop_nginx()
        self.stage.start_nginx({}, url=url)

    def works(self, url, db=0, allowed=()):
        """Events, logs and members come in that way; errors are allowed."""
        self.start(url)
        self.stage.wait_subscribed()
        self.events(db)
        self.stage.check_log(*allowed)

    def events(self, db=0):
        """Events, logs and members come."""
        self.number += 1
        name = f"w{self.number}"
        client = redis.Redis(port=self.stage.redis_port, db=db)
        client.sadd("kv-workers", name)
        client.hset("kv-worker:{%s}" % name, "address", NOBODY)
        stream = Stream(client, Cache(name, self.rng, self.prompts),
                        milliseconds())
        stream.send(20, live=False)
        stream.send(5)
        self.stage.wait_applied(stream.cursor())
        self.stage.wait_confidence(name, "EXACT", beat=stream.heartbeat)
        wait_until(f"{name} is a member", lambda: self.stage.workers()[name][
            "origin"] == "redis", PATIENCE)

    def fails(self, url, why):
        """Redis isn't reached, and once in the log it says why."""
        port = re.search(r"(127\.0\.0\.\d):(\d+)", url)
        if port:                        # by a wire, which counts
            with Wire(port[1], 0, int(port[2])) as wire:
                self._fails(url.replace(port[2], str(wire.port)), why,
                            lambda: wire.taken)
        else:
            self._fails(url, why, self.stage.connections)

    def _fails(self, url, why, connections):
        self.start(url)
        wait_until(f"the log says {why}", lambda: re.search(
            why, self.stage.log()), PATIENCE)
        self.stage.wait_tried(connections)
        said = [line for line in self.stage.log().splitlines()
                if re.search(r"\[(error|crit|alert|emerg)\]", line)]
        # of TLS nginx says something as well
        most = 2 if "SSL" in why else 1
        assert 1 <= len(said) <= most * min(SHARDS, PROCESSES), said
        assert self.stage.status()["redis"]["up"] == 0
        assert json_has_no(self.stage.call("GET", "/status").decode())

    def plain(self, credentials="", host="127.0.0.1"):
        """A URL."""
        return f"redis://{credentials}{host}:{self.stage.redis_port}"

    def tls(self, *parameters, host="127.0.0.1", credentials="",
            ca="ca.pem"):
        """A URL with TLS, and its parameters."""
        trusted = [f"ssl_trusted_certificate={self.path(ca)}"] if ca else []
        return " ".join([f"rediss://{credentials}{host}:{self.tls_port}",
                         *trusted, *parameters])


def documented_acl():
    """The rules that docs/configuration.md has for Redis's user."""
    text = (ROOT / "docs" / "configuration.md").read_text()
    rules = re.search(r"ACL SETUSER router on '>secret' ((?:.*\\\n)*.*)",
                      text)[1]
    return " ".join(shlex.split(rules.replace("\\\n", " ")))


def json_has_no(text):
    """No secret is in a text."""
    return not any(secret in text for secret in SECRETS)


at = None                       # the Play, set by main()


# ------------------------------------------------------------------------ TLS

def tls_works():
    """TLS: the certificate is for the address, its authority is trusted"""
    at.works(at.tls())
    assert at.stage.redis.info("clients")["connected_clients"] >= 2


def tls_works_by_name():
    """TLS: the certificate is for the name given"""
    at.works(at.tls(f"ssl_name={NAME}"))


def tls_works_with_a_user():
    """TLS: a user, a password, and a database"""
    url = at.tls(credentials=USER + "@")
    at.works(url.replace(f":{at.tls_port}", f":{at.tls_port}/2"), db=2)


def tls_works_unverified():
    """TLS: with ssl_verify=off any certificate will do"""
    at.works(at.tls("ssl_verify=off", ca=None))


def tls_demands_a_certificate():
    """TLS: a server that demands a certificate gets nginx's"""
    at.stage.redis.config_set("tls-auth-clients", "yes")
    try:
        at.works(at.tls(f"ssl_certificate={at.path('client.pem')}",
                        f"ssl_certificate_key={at.path('client.key')}"))
        at.start(at.tls())
        wait_until("the log says so", lambda: "certificate required" in
                   at.stage.log(), PATIENCE)
        assert at.stage.status()["redis"]["up"] == 0
    finally:
        at.stage.redis.config_set("tls-auth-clients", "no")


def another_authority_is_refused():
    """TLS: a certificate of another authority is refused, said once"""
    at.fails(at.tls(ca="other.pem", credentials=USER + "@"),
             "certificate can't be verified: \".*certificate")


def the_system_has_no_such_authority():
    """TLS: by default the system's authorities are trusted, no others"""
    at.fails(at.tls(ca=None), "certificate can't be verified: \"")


def another_name_is_refused():
    """TLS: a certificate for another name is refused, said once"""
    at.fails(at.tls("ssl_name=other.test"),
             "certificate does not match: \"other.test\"")


def another_address_is_refused():
    """TLS: a certificate for another address is refused, said once"""
    at.fails(at.tls(host="127.0.0.2"),
             "certificate does not match: \"127.0.0.2\"")


def tls_to_a_plain_port_fails():
    """TLS: a server without TLS is refused, said once"""
    at.fails(at.tls().replace(str(at.tls_port), str(at.stage.redis_port)),
             "SSL handshake failed")


def plain_to_a_tls_port_fails():
    """a server with TLS alone is not reached without, said once"""
    at.fails(f"redis://127.0.0.1:{at.tls_port}", "redis closed the connection")


def tls_survives_an_outage():
    """TLS: connections that are killed come back, and cost no event"""
    at.works(at.tls())
    for _ in range(3):
        at.stage.redis.client_kill_filter(_type="normal", skipme=True)
        at.stage.resubscribe()
    at.events()


# ------------------------------------------------------------- other addresses

def a_socket_works():
    """a unix socket: the path alone"""
    at.works(f"unix:{at.socket}")


def a_socket_works_with_a_user():
    """a unix socket: a user, a password, and a database"""
    at.works(f"unix://{USER}@{at.socket}?db=3", db=3)


def ipv6_works():
    """IPv6: brackets, with a database"""
    try:
        redis.Redis(host="::1", port=at.stage.redis_port).ping()
    except redis.ConnectionError:
        print("# no IPv6 here")
        return
    at.works(at.plain(host="[::1]") + "/1", db=1)


def a_name_is_resolved_by_nginx():
    """names are resolved by nginx's resolver when there is one"""
    with Names({"localhost": "127.0.0.2"}) as names:
        other = free_port()
        with Wire("127.0.0.2", other, at.stage.redis_port):
            at.start(f"redis://localhost:{other}; resolver "
                     f"127.0.0.1:{names.port} ipv6=off valid=1s")
            at.stage.wait_subscribed()
            at.events()
            assert names.asked, "the resolver was not asked"
        # it moves: by what the system said at the start nobody finds it
        at.stage.wait_subscribed(0)
        names.addresses["localhost"] = "127.0.0.3"
        with Wire("127.0.0.3", other, at.stage.redis_port):
            at.stage.wait_subscribed()
            at.events()


# ---------------------------------------------------------------- several URLs

def the_next_url_is_tried():
    """several URLs: the first server is dead, the second one is taken"""
    dead = free_port()
    at.works(f"redis://127.0.0.1:{dead} {at.plain()}",
             allowed=[r"connect\(\) failed"])
    assert "Connection refused" in at.stage.log()


def a_server_that_loads_is_passed_over():
    """several URLs: a server that loads its data is passed over"""
    with Loading() as loading:
        at.works(f"redis://127.0.0.1:{loading.port} {at.plain()}",
                 allowed=["LOADING"])
        assert "LOADING" in at.stage.log()


def what_fits_no_command_is_asked_ever_later():
    """a server that has us ask for too much is asked ever later"""
    with Endless() as endless:
        at.start(f"redis://127.0.0.1:{endless.port}")
        wait_until("it is said", lambda: "members were not asked for" in
                   at.stage.log(), PATIENCE)
        # one that asks at once, again and again, does so a thousand times

        wait_until("it is asked again", lambda: endless.scans > 3, PATIENCE)
        assert endless.scans <= 10 * min(SHARDS, PROCESSES), endless.scans
        at.stage.stop_nginx()


def pages_without_end_are_given_up():
    """a server whose pages have no ids and no end is left in the end"""
    with Endless(b"$1\r\n7\r\n") as endless:
        at.start(f"redis://127.0.0.1:{endless.port}")
        wait_until("it is said", lambda: "members can't be read, "
                   "\"kv-workers\": \"too many\"" in at.stage.log(), PATIENCE)
        at.stage.stop_nginx()
        assert endless.scans >= 4096, endless.scans


def the_second_takes_over():
    """several URLs: when the first one dies the second one is taken"""
    with Wire("127.0.0.1", free_port(), at.stage.redis_port) as first:
        at.works(f"redis://127.0.0.1:{first.port} {at.plain()}")
    wait_until("the second one is taken", lambda: re.search(
        f"subscribed to .* at \"{at.plain()}\"", at.stage.log()), PATIENCE)
    at.stage.wait_subscribed()
    at.events()


class Another:
    """A Redis server of its own, that holds nothing."""

    def __init__(self, port):
        self.process = Process("another", [
            "redis-server", "--bind", "127.0.0.1", "--port", str(port),
            "--save", ""], at.stage.directory)
        self.client = redis.Redis(port=port)
        wait_until("the other Redis answers", self.answers, PATIENCE)

    def answers(self):
        """Whether it is there."""
        try:
            return self.client.ping()
        except redis.ConnectionError:
            return False

    def connections(self):
        """How many there ever were."""
        return self.client.info("stats")["total_connections_received"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()
        self.process.stop()


def an_empty_first_one_is_asked_nothing():
    """several URLs: a first server that comes back empty is asked nothing"""
    port = free_port()
    at.stage.redis.flushall()           # no logs that are read at once
    at.start(f"redis://127.0.0.1:{port} {at.plain()}")
    at.stage.wait_subscribed()
    with Another(port) as first:
        before = first.connections()
        at.events()
        at.stage.redis.client_kill_filter(_type="normal", skipme=True)
        at.events()
        assert first.connections() == before, first.client.client_list()
        at.stage.stop_nginx()


def all_move_with_the_subscription():
    """several URLs: logs and members are read where the subscription is"""
    port = free_port()
    with Another(port) as first:
        at.start(f"redis://127.0.0.1:{port} {at.plain()}")
        at.stage.wait_subscribed()
        wait_until("members are read", lambda: any(
            c["cmd"] != "client" and "P" not in c["flags"]
            for c in first.client.client_list()), PATIENCE)
        # it takes nobody any more, and ends the subscriptions alone
        first.client.config_set("maxclients", len(
            first.client.client_list(_type="normal")))
        first.client.client_kill_filter(_type="pubsub")
        wait_until("the second one is taken", lambda: re.search(
            f"subscribed to .* at \"{at.plain()}\"", at.stage.log()), PATIENCE)
        at.stage.wait_subscribed()
        at.events()
        wait_until("the first one is left", lambda: len(
            first.client.client_list()) == 1, PATIENCE)
        at.stage.stop_nginx()


# ----------------------------------------------------------------------- users

def the_documented_user_is_enough():
    """the documented user may do all that is needed"""
    at.works(at.plain(USER + "@"))
    log = at.stage.redis.acl_log()
    denied = [entry for entry in log if entry["username"] == "router"]
    assert not denied, denied


def a_user_without_members_hears_events():
    """a user who may not read members hears events; it is said once"""
    at.stage.redis.execute_command("ACL", "SETUSER", "router", "-sscan")
    at.start(at.plain(USER + "@"))
    at.stage.wait_subscribed()
    stream = Stream(at.stage.redis, Cache("e1", at.rng, at.prompts),
                    milliseconds())
    stream.send(30)
    at.stage.wait_applied(stream.cursor())
    wait_until("it is said", lambda: "members can't be read" in
               at.stage.log(), PATIENCE)
    at.stage.wait_asked("sscan")
    said = [line for line in at.stage.log().splitlines()
            if "members can't be read" in line and "[error]" in line]
    assert len(said) == min(SHARDS, 1), said
    at.stage.redis.execute_command("ACL", "SETUSER", "router", "+sscan")
    wait_until("the last one is a member", lambda: at.stage.workers().get(
        f"w{at.number}", {}).get("origin") == "redis", PATIENCE)


def a_wrong_password_is_said_once():
    """a wrong password is said once, by a socket and by TLS"""
    at.fails(f"unix://router:{SECRETS[2]}@{at.socket}",
             "redis refused the password: \"WRONGPASS")
    at.fails(at.tls(credentials=f"router:{SECRETS[2]}@"),
             "redis refused the password: \"WRONGPASS")


def no_secret_was_told():
    """no password is in any log"""
    for log in (*at.stage.logs, at.stage.nginx.log):
        assert json_has_no(log.read_text(errors="replace")), log.name


# -------------------------------------------------------------- other servers

class Fake(socketserver.ThreadingTCPServer):
    """Answers as a Redis does that is not well."""

    daemon_threads = allow_reuse_address = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self._Handler)
        self.port = self.server_address[1]
        self.scans = 0

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class Loading(Fake):
    """One that reads its data."""

    class _Handler(socketserver.BaseRequestHandler):
        def handle(self):
            while self.request.recv(4096):
                self.request.sendall(   # to INFO and PING
                    b"-LOADING Redis is loading the dataset in memory\r\n"
                    * 2)


class Endless(Fake):
    """One whose pages go on: with what fits no command, or this cursor."""

    def __init__(self, cursor=b"$20000\r\n" + b"7" * 20000 + b"\r\n"):
        super().__init__()
        self.cursor = cursor

    class _Handler(socketserver.BaseRequestHandler):
        def handle(self):
            while data := self.request.recv(4096):
                if b"SUBSCRIBE" in data:
                    self.request.sendall(b"*3\r\n$10\r\npsubscribe\r\n"
                                         b"$11\r\nkv-events:*\r\n:1\r\n")
                elif b"SSCAN" in data:
                    self.server.scans += 1
                    self.request.sendall(b"*2\r\n" + self.server.cursor
                                         + b"*0\r\n")
                else:                   # INFO and PING come together
                    self.request.sendall(b"+PONG\r\n" * 2)


def main():
    global at
    with Stage("connections") as stage, Loop():
        at = Play(stage)
        return stage.run([
            tls_works,
            tls_works_by_name,
            tls_works_with_a_user,
            tls_works_unverified,
            tls_demands_a_certificate,
            another_authority_is_refused,
            the_system_has_no_such_authority,
            another_name_is_refused,
            another_address_is_refused,
            tls_to_a_plain_port_fails,
            plain_to_a_tls_port_fails,
            tls_survives_an_outage,
            a_socket_works,
            a_socket_works_with_a_user,
            ipv6_works,
            a_name_is_resolved_by_nginx,
            the_next_url_is_tried,
            a_server_that_loads_is_passed_over,
            what_fits_no_command_is_asked_ever_later,
            pages_without_end_are_given_up,
            the_second_takes_over,
            an_empty_first_one_is_asked_nothing,
            all_move_with_the_subscription,
            the_documented_user_is_enough,
            a_user_without_members_hears_events,
            a_wrong_password_is_said_once,
            no_secret_was_told])


if __name__ == "__main__":
    sys.exit(main())
