#!/usr/bin/python3
"""The engine stand-in as a service: HTTP, and events in a real Redis; TAP."""

import asyncio
import json
import shutil
import signal
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import msgpack
import redis

import tap
from kv_publisher import Publisher
from processes import Process, free_port, wait_until

DEMO = Path(__file__).resolve().parent
WORKER = "w1"
LOG, MEMBER = "kv-log:{w1}", "kv-worker:{w1}"


class Fixture:
    """One Redis and one engine; each test leaves both running."""

    def __init__(self, directory):
        self.directory = directory
        self.port = free_port()
        self.client = redis.Redis(host="127.0.0.1", port=self.port)
        self.server = self.engine = None
        self.url = ""

    def start_redis(self):
        self.server = Process("redis", [
            "redis-server", "--bind", "127.0.0.1", "--port", str(self.port),
            "--save", ""], self.directory)
        wait_until("redis", self._ping)

    def start_engine(self):
        self.engine = Process("engine", [
            sys.executable, "-B", str(DEMO / "engine.py"), "--id", WORKER,
            "--redis", f"redis://127.0.0.1:{self.port}", "--blocks", "256",
            "--prefill-us-per-token", "1", "--decode-us-per-token", "1000"],
            self.directory)
        line = wait_until("engine", lambda: [
            line for line in self.engine.log.read_text().splitlines()
            if line.startswith("ready on ")])[0]
        self.url = "http://" + line.removeprefix("ready on ")
        wait_until("membership", lambda: self.client.exists(MEMBER))

    def stop(self):
        for process in (self.engine, self.server):
            if process is not None:
                process.stop()

    def post(self, path, body=None):
        """The response to a POST; urllib.error.HTTPError when not 200."""
        request = urllib.request.Request(
            self.url + path, json.dumps(body or {}).encode(),
            {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=5)

    def one(self, first):
        """One prompt of two blocks, answered with 17 tokens.

        Its blocks are one message, the answer's block is another.
        """
        self.post("/v1/completions", {
            "prompt": list(range(first, first + 32)), "max_tokens": 17,
            "ignore_eos": True}).read()

    def log(self, key=LOG):
        """The stream as [(epoch, seq, envelope)]."""
        return [(*map(int, entry.split(b"-")), msgpack.unpackb(fields[b"m"]))
                for entry, fields in self.client.xrange(key)]

    def wait_for_log(self, length):
        wait_until(f"{length} messages in the log",
                   lambda: len(self.log()) >= length, 10)
        return self.log()

    def _ping(self):
        try:
            return self.client.ping()
        except redis.RedisError:
            return False


at = None                   # the Fixture, set by main()


def the_log_is_contiguous():
    """messages are counted from 1 and name their log entry"""
    at.one(0)
    log = at.wait_for_log(2)
    assert [seq for _, seq, _ in log] == [1, 2]
    for epoch, seq, envelope in log:
        assert envelope[:6] == ["kvr1", WORKER, epoch, seq, True, 0]
        assert msgpack.unpackb(envelope[6])[0][0] == "s"
    assert abs(log[0][0] - time.time() * 1000) < 60_000


def what_is_published_is_logged():
    """subscribers get the bytes of the log, then heartbeats without payload"""
    with at.client.pubsub(ignore_subscribe_messages=True) as pubsub:
        pubsub.subscribe("kv-events:" + WORKER)
        pubsub.get_message(timeout=1)
        length = len(at.log())
        at.one(1000)
        at.wait_for_log(length + 2)
        live, beats = [], []
        deadline = time.monotonic() + 5
        while not (len(live) == 2 and beats and beats[-1][3] == length + 2):
            assert time.monotonic() < deadline, (live, beats)
            message = pubsub.get_message(timeout=1)
            if message:
                envelope = msgpack.unpackb(message["data"])
                (beats if envelope[6] is None else live).append(envelope)
        assert live == [envelope for _, _, envelope in at.log()][-2:]


def members_are_described():
    """membership says address, model, block size and the last seq"""
    wait_until("the hash is up to date", lambda: int(
        at.client.hget(MEMBER, "seq")) == len(at.log()))
    member = {k.decode(): v.decode()
              for k, v in at.client.hgetall(MEMBER).items()}
    assert "http://" + member["address"] == at.url
    assert (member["model"], member["block_size"], member["ranks"],
            member["role"], member["complete"]) == (
                "demo", "16", "1", "both", "1")
    assert 10 < at.client.ttl(MEMBER) <= 15
    assert at.client.smembers("kv-workers") == {WORKER.encode()}


def an_outage_is_made_good():
    """after an outage that lost Redis its data the whole log is back"""
    before = at.log()
    at.server.stop()
    at.one(2000)                        # served all the same
    at.start_redis()
    log = at.wait_for_log(len(before) + 2)
    assert log[:len(before)] == before
    assert [seq for _, seq, _ in log] == list(range(1, len(before) + 3))


def a_lost_connection_sends_nothing_twice():
    """after a lost connection only what is missing is sent"""
    before = at.log()
    at.client.client_kill_filter(_type="normal", skipme=True)
    at.one(3000)
    log = at.wait_for_log(len(before) + 2)
    assert [seq for _, seq, _ in log] == list(range(1, len(before) + 3))


def a_reset_is_a_clear():
    """/reset_prefix_cache publishes a clear"""
    length = len(at.log())
    at.post("/reset_prefix_cache").read()
    log = at.wait_for_log(length + 1)
    assert msgpack.unpackb(log[-1][2][6]) == [["c", 0]]


def streams_carry_usage():
    """a stream ends with its usage and [DONE]"""
    with at.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "hello " * 40}],
            "stream": True, "stream_options": {"include_usage": True},
            "max_tokens": 5, "ignore_eos": True}) as response:
        lines = [line[6:].strip() for line in response
                 if line.startswith(b"data: ")]
    assert lines[-1] == b"[DONE]"
    usage = json.loads(lines[-2])["usage"]
    assert usage["completion_tokens"] == 5
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}


def chat_is_tokenised_as_announced():
    """/tokenize gives the tokens that a chat completion counts"""
    messages = {"messages": [{"role": "user", "content": "Why, oh why?"}]}
    tokens = json.load(at.post("/tokenize", messages))
    usage = json.load(at.post("/v1/chat/completions",
                              {**messages, "max_tokens": 1}))["usage"]
    assert len(tokens["tokens"]) == tokens["count"] == usage["prompt_tokens"]


def mistakes_are_explained():
    """bad requests get OpenAI's error object"""
    for body, status in (({"prompt": []}, 400),
                         ({"prompt": [1, "2"]}, 400),
                         ({"prompt": [[1], [2]]}, 400),
                         ({"prompt": "a", "max_tokens": 10**6}, 400),
                         ({"prompt": "a", "max_tokens": 0}, 400),
                         ({"prompt": "a", "stream": True,
                           "stream_options": 1}, 400),
                         ({"prompt": "a", "model": "other"}, 404)):
        try:
            at.post("/v1/completions", body)
        except urllib.error.HTTPError as err:
            assert err.code == status, body
            assert json.load(err)["error"]["message"], body
        else:
            raise AssertionError(f"{body} was accepted")


def a_client_that_leaves_frees_its_place():
    """a client that hangs up leaves no request running"""
    response = at.post("/v1/completions", {
        "prompt": [1] * 40, "max_tokens": 3000, "ignore_eos": True,
        "stream": True})
    response.readline()
    assert "running{model_name=\"demo\"} 1\n" in metrics()
    response.close()
    wait_until("nothing runs", lambda: (
        "running{model_name=\"demo\"} 0\n" in metrics()), 5)


def metrics():
    with urllib.request.urlopen(at.url + "/metrics", timeout=5) as response:
        return response.read().decode()


def a_restart_is_a_new_epoch():
    """SIGTERM deregisters; the next start counts from 1 in a higher epoch"""
    epoch, length = at.log()[-1][0], len(at.log())
    future = epoch + 10**9              # a clock that went back
    at.engine.signal(signal.SIGTERM)
    wait_until("the engine is gone", lambda: not at.client.exists(MEMBER))
    assert not at.client.smembers("kv-workers")
    at.engine.stop()
    at.client.xadd(LOG, {"m": b"-"}, id=f"{future}-7")
    at.start_engine()
    at.one(4000)
    wait_until("the new epoch", lambda: at.client.xlen(LOG) == length + 3)
    ids = [key for key, _ in at.client.xrange(LOG)][-2:]
    assert ids == [b"%d-%d" % (future + 1, seq) for seq in (1, 2)]


def a_higher_epoch_supersedes():
    """an engine whose log has a higher epoch stops publishing, not serving"""
    last = at.client.xrevrange(LOG, count=1)[0][0]
    intruder = b"%d-1" % (int(last.split(b"-")[0]) + 5)
    at.client.xadd(LOG, {"m": b"-"}, id=intruder)
    at.one(5000)
    wait_until("it says so", lambda: (
        "publishing stops" in at.engine.log.read_text()))
    assert at.client.xrevrange(LOG, count=1)[0][0] == intruder
    at.one(6000)


def an_overflow_is_admitted():
    """what the ring lost makes the view incomplete until the next clear"""
    async def overflow():
        publisher = Publisher(f"redis://127.0.0.1:{at.port}", "w2", {}, ring=3)
        for _ in range(5):
            publisher.publish([["r", 0, 0, b""]])
        task = asyncio.create_task(publisher.run())
        while publisher.sent < 5:
            await asyncio.sleep(0.01)
        publisher.publish([["c", 0]])
        publisher.close()
        await task

    asyncio.run(asyncio.wait_for(overflow(), 10))
    assert [(seq, envelope[4]) for _, seq, envelope in at.log("kv-log:{w2}")
            ] == [(3, False), (4, False), (5, False), (6, True)]


def main():
    global at
    directory = Path(tempfile.mkdtemp(prefix="kv-router-test-"))
    at = Fixture(directory)
    try:
        at.start_redis()
        at.start_engine()
        return tap.run([
            the_log_is_contiguous,
            what_is_published_is_logged,
            members_are_described,
            an_outage_is_made_good,
            a_lost_connection_sends_nothing_twice,
            a_reset_is_a_clear,
            streams_carry_usage,
            chat_is_tokenised_as_announced,
            mistakes_are_explained,
            a_client_that_leaves_frees_its_place,
            a_restart_is_a_new_epoch,
            a_higher_epoch_supersedes,
            an_overflow_is_admitted])
    finally:
        at.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
