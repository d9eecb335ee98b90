#!/usr/bin/python3
"""What does not work is told in the log and by the status, once; TAP.

The log has the level that it has without one: error.
"""

import contextlib
import os
import re
import signal
import socket
import sys

import broken
import relay
from stage import PATIENCE, PROCESSES, Stage, wait_until

SILENT = 4                       # seconds
STUCK = 10                      # seconds without a timer
IDS = list(range(1, 65))
SECRET = "ab6e41c9d27f0358"

POLICY = """
local _M = {}

function _M.new() return _M end

function _M:pick(ctx)
    while ctx.request.headers["x-hang"] do end
    return 1
end

return _M
"""

at = None                       # the stage, set by main()
w1 = w2 = None                  # engines
kv = None                       # what w2 says of its cache
beside = None                   # the relay beside w2


class SilenceStage(Stage):
    """nginx as mistakes have it."""

    def _write_conf(self, engines, policy, url, log):
        super()._write_conf(engines, policy, url, log)
        (self.directory / "acme").mkdir(exist_ok=True)
        (self.directory / "acme" / "hangs.lua").write_text(POLICY)
        path = self.directory / "nginx.conf"
        text = path.read_text()
        for old, new in (
                (f"{log} notice;", f"{log};"),
                ("kv_router_zone  ", f"kv_router_zone  stale={SILENT}s "),
                ("    lua_package_path  \"",
                 f"    lua_package_path  \"{self.directory}/?.lua;"),
                ("        location /kv/ {", f"""
        location /past/ {{
            access_by_lua_block {{ router:access() }}
            proxy_pass http://{w2.address};
        }}

        location /kv/ {{""")):
            assert old in text, (old, text)
            text = text.replace(old, new, 1)
        path.write_text(text)


def told(pattern, level="error"):
    """The warning of the status page that says so, once it is there; the log
    has it, too, unless its level hides it."""
    def look():
        return [one for one in at.status()["warnings"]
                if re.search(pattern, one["text"])]
    found = wait_until(f"the status has {pattern}", look, PATIENCE)
    assert len(found) == 1 and found[0]["level"] == level, found
    assert found[0]["last"] >= found[0]["first"] > 0, found
    lines = re.findall(rf"\[error\].* kv_router zone \"main\": .*{pattern}",
                       at.log())
    assert len(lines) == (found[0]["count"] if level == "error" else 0), (
        found, at.log())
    return found[0]


# ---------------------------------------------------------------------- tests

def requests_past_the_balancer():
    """a request that went past the balancer, with both addresses, once"""
    for _ in range(5):
        at.call("POST", "/v1/completions", {"prompt": IDS})
    assert not [one for one in at.status()["warnings"]
                if "past the balancer" in one["text"]], at.status()["warnings"]
    for _ in range(5):
        at.call("POST", "/past/v1/completions", {"prompt": IDS})
    one = told(f'worker "w1" at "{w1.address}" was chosen, but the request '
               f'went to "{w2.address}", past the balancer: "proxy_pass" must '
               'name an upstream that has "balancer_by_lua_block { '
               r'router:balance\(\) }"')
    assert one["count"] == 1, one


def two_ids_at_one_address():
    """two ids of one engine, by the status"""
    with contextlib.suppress(OSError):          # it is a 201
        at.call("PUT", "/kv/workers/w9", {"address": w1.address})
    for _ in range(5):
        at.call("POST", "/v1/completions", {"prompt": IDS})
    one = told('the workers "w1" and "w9" have the same address '
               f"{w1.address}, so the load of this engine is counted as that "
               "of two: leave one of them out", "warn")
    assert one["count"] == 1, one
    at.call("DELETE", "/kv/workers/w9")


def another_channel():
    """a relay with another channel than the router's"""
    far = relay.Relay(at, "far", "--events", f"tcp://127.0.0.1:{kv.port}",
                      "--channel", "kv-other:")
    try:
        one = told('registration of worker "far" names another channel: no '
                   'event of it is heard: its kv-relay has --channel '
                   '"kv-other:", and channel= of kv_router_redis begins with '
                   '"kv-events:"; write the same')
        assert one["count"] == 1, one
    finally:
        far.stop()


def another_database():
    """a relay with another database of Redis, when messages are missed"""
    kv.send(relay.stored([1], None))
    told('messages of worker "w2" up to .* are lost, Redis does not have them '
         r'in "kv-log:\{w2\}": is its kv-relay\'s database that of '
         "kv_router_redis")


def a_relay_dies():
    """a relay that dies: when nothing was heard of it for the zone's stale"""
    at.wait_confidence("w2", "EXACT", "DEGRADED", "SYNCING")
    assert "nothing was heard" not in at.log()
    beside.kill()
    told(r'nothing was heard of worker "w2" for \d+ ms, so its view is DEGRADED: '
         "is its kv-relay running, and does it reach Redis?")
    assert at.workers()["w2"]["reason"] == "silent"


def redis_dies():
    """with Redis down the reason is redis_down, not silent"""
    at.stop_redis()
    at.wait_subscribed(0)
    worker = at.workers()["w2"]
    assert (worker["confidence"], worker["reason"]) == (
        "DEGRADED", "redis_down"), worker
    text = at.call("GET", "/status?format=prometheus").decode()
    assert re.search(r'worker="w2"[^\n]*reason="redis_down"[^\n]* 1\n',
                     text), re.findall("[^\n]*redis_down[^\n]*", text)
    at.start_redis()
    at.wait_subscribed()


def another_address():
    """a standby relay whose --address is another engine's: by that relay"""
    first = relay.Relay(at, "w3", "--events", f"tcp://127.0.0.1:{kv.port}")
    first.wait_for("lease taken")
    second = relay.Relay(at, "w3", "--events", f"tcp://127.0.0.1:{kv.port}",
                         "--address", "127.0.0.1:81")
    try:
        second.wait_for("another engine has this worker's id")
        line = re.search(r"level=warn[^\n]*this worker's id[^\n]*",
                         second.text())[0]
        for word in ('worker="w3"', 'address="127.0.0.1:81"',
                     'other="127.0.0.1:80"', "--worker of its own"):
            assert word in line, line
    finally:
        second.stop()
        first.stop()


def a_policy_that_never_ends():
    """a process whose policy never ends: by another one, with its pid"""
    assert PROCESSES > 1
    at.patience = 2                     # the process may have accepted more
    peer = socket.create_connection(("127.0.0.1", at.port))
    peer.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nX-Hang: 1\r\n"
                 b"Content-Length: 26\r\n\r\n" b'{"prompt":[1,2,3,4,5,6,7]}')
    one = told(rf"process \d+ hangs for {STUCK} s, and so do its requests: it "
               'was stopped, or its Lua, as the policy "acme.hangs", does not '
               r"end: try the policy by kv-router-check, reload, then kill -9 "
               r"\d+")
    pid = int(one["text"].split()[1])
    assert one["count"] == 1 and pid in at.children(), (one, at.children())
    assert pid == int(one["text"].split()[-1]), one
    peer.close()
    os.kill(pid, signal.SIGKILL)


def a_password_that_redis_refuses():
    """the whole sentence by which Redis refuses a password, without it"""
    at.stop_nginx()
    at.start_nginx({"w1": w1.address}, "p2c",
                   at.redis_url().replace("//", f"//:{SECRET}@"))
    said = ('redis refused the password: "ERR AUTH <password> called without '
            "any password configured for the default user. Are you sure your "
            'configuration is correct?"')
    wait_until("the log has it", lambda: said in at.log(), PATIENCE)
    found = [one["text"] for one in at.status()["warnings"]
             if one["text"].startswith(said)]
    assert found == [f'{said}, redis: "redis://:***@127.0.0.1:'
                     f'{at.redis_port}"'], at.status()["warnings"]
    assert SECRET not in at.log()


def main():
    """Runs the tests on one stage."""
    global at, w1, w2, kv, beside
    with SilenceStage("silence") as at:
        w1, w2 = broken.Engine("w1"), broken.Engine("w2")
        kv = relay.Engine()
        at.start_redis()
        beside = relay.Relay(at, "w2", "--events", f"tcp://127.0.0.1:{kv.port}",
                             url=f"{at.redis_url()}/1")
        try:
            kv.wait_subscribed()
            kv.send(relay.stored([9], None))
            at.start_nginx({"w1": w1.address, "w2": w2.address}, "acme.hangs")
            at.wait_subscribed()
            return at.run([
                requests_past_the_balancer, two_ids_at_one_address,
                another_channel, another_database, a_relay_dies, redis_dies,
                another_address, a_policy_that_never_ends,
                a_password_that_redis_refuses])
        finally:
            beside.stop()


if __name__ == "__main__":
    sys.exit(main())
