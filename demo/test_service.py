#!/usr/bin/python3
"""The engine stand-in as a service: HTTP, and events by ZeroMQ; TAP."""

import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import msgpack
import zmq

import tap
from processes import WAIT_SECONDS, wait_until
from worker import DEMO, Worker

TIMEOUT_MS = 60_000


class Fixture:
    """One engine and who listens to it; each test leaves both running."""

    def __init__(self, directory):
        self.worker = Worker(
            "engine", directory, "--blocks", "256",
            "--prefill-us-per-token", "1", "--decode-us-per-token", "10000")
        self.worker.wait_ready()
        self.url = "http://" + self.worker.address
        self.context = zmq.Context()
        self.context.rcvtimeo = TIMEOUT_MS
        self.context.linger = 0
        self.sub = self.context.socket(zmq.SUB)
        self.sub.subscribe(b"")
        self.sub.connect(self.worker.events)

    def stop(self):
        self.context.destroy()
        self.worker.stop()

    def post(self, path, body=None):
        """The response to a POST; urllib.error.HTTPError when not 200."""
        request = urllib.request.Request(
            self.url + path, json.dumps(body or {}).encode(),
            {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=WAIT_SECONDS)

    def one(self, first):
        """One prompt of two blocks, answered with 17 tokens.

        Its blocks are one batch, the answer's block is another.
        """
        self.post("/v1/completions", {
            "prompt": list(range(first, first + 32)), "max_tokens": 17,
            "ignore_eos": True}).read()

    def batch(self):
        """The next batch published: its number and its bytes."""
        topic, number, payload = self.sub.recv_multipart()
        assert topic == b"" and len(number) == 8
        return int.from_bytes(number, "big"), payload


at = None                   # the Fixture, set by main()


def replay_gives_what_was_published():
    """a replay gives all batches from a number on, counted from 0"""
    assert at.worker.replayed(0) == []
    at.one(0)
    at.one(1000)
    whole = at.worker.replayed(0)
    assert [number for number, _ in whole] == list(range(len(whole)))
    assert len(whole) == 4
    assert at.worker.replayed(3) == whole[3:] and at.worker.replayed(4) == []


def batches_are_published():
    """a subscriber gets the very batches that are replayed"""
    at.one(2000)
    first, second = at.batch(), at.batch()
    while first[0] < 4:                 # it may have seen the first ones
        first, second = second, at.batch()
    assert [first, second] == at.worker.replayed(4)
    time, (event,), rank = msgpack.unpackb(first[1])
    assert isinstance(time, float) and rank == 0
    assert (event[0], event[2:5]) == (
        "BlockStored", [None, list(range(2000, 2032)), 16])
    (below,) = msgpack.unpackb(second[1])[1]
    assert below[2] == event[1][1]


def a_reset_is_a_clear():
    """/reset_prefix_cache publishes a clear"""
    at.post("/reset_prefix_cache").read()
    assert msgpack.unpackb(at.batch()[1])[1] == [["AllBlocksCleared"]]


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
                         ({"prompt": [[1], []]}, 400),
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


def said(request):
    """What the engine answers to the bytes of a request, until it closes."""
    host, port = at.worker.address.split(":")
    with socket.create_connection((host, port), WAIT_SECONDS) as peer:
        peer.sendall(request)
        return b"".join(iter(lambda: peer.recv(1 << 16), b""))


def other_requests_are_answered():
    """HTTP/1.0 is streamed to without chunks; what is not served is refused"""
    body = b'{"prompt":[1,2],"max_tokens":2,"stream":true}'
    answer = said(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n"
                  b"\r\n%b" % (len(body), body))
    assert b"Connection: close" in answer and b"chunked" not in answer, answer
    assert re.search(rb"\r\n\r\ndata: {.*\n\ndata: \[DONE\]\n\n$", answer,
                     re.S), answer
    for line, more, status in ((b"GET /nowhere", b"", b"404 Not Found"),
                               (b"GET /tokenize", b"", b"405 Method Not"),
                               (b"POST /tokenize", b"Content-Length: 99999999",
                                b"413 Request Entity"),
                               (b"POST /tokenize", b"Transfer-Encoding: chunked",
                                b"413 Request Entity")):
        answer = said(line + b" HTTP/1.1\r\nConnection: close\r\n" + more
                      + b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 " + status), answer
    assert said(b"nonsense\r\n\r\n") == b""


def each_port_is_an_engine():
    """a program has an engine at each port, with a cache and events of its own"""
    program = [sys.executable, "-B", DEMO / "engine.py", "0", "0"]
    endpoints = [f"ipc://{at.worker.directory}/{name}" for name in "ab"]
    with subprocess.Popen(
            [*program, *(f"--events={one}" for one in endpoints)], text=True,
            stdout=subprocess.PIPE) as two:
        try:
            ports = [two.stdout.readline().split(":")[1] for _ in endpoints]
            assert len(set(ports)) == 2, ports
            body = json.dumps({"prompt": [1] * 40, "max_tokens": 1}).encode()
            cached = [json.load(urllib.request.urlopen(
                f"http://127.0.0.1:{int(port)}/v1/completions", body))["usage"][
                    "prompt_tokens_details"]["cached_tokens"]
                      for port in (ports[0], ports[0], ports[1])]
            assert cached == [0, 32, 0], cached
        finally:
            two.terminate()
    wrong = subprocess.run([*program, "--events", endpoints[0]], check=False,
                           capture_output=True, text=True)
    assert "2 engines need --events as often, not 1 times" in wrong.stderr
    taken = subprocess.run([*program[:3], at.worker.address.split(":")[1]],
                           check=False, capture_output=True, text=True)
    assert taken.returncode == 1 and re.match(
        "kv-stand-in: .*address already in use\n$", taken.stderr), taken


def a_client_that_leaves_frees_its_place():
    """a client that hangs up leaves no request running"""
    response = at.post("/v1/completions", {
        "prompt": [1] * 40, "max_tokens": 3000, "ignore_eos": True,
        "stream": True})
    response.readline()
    assert "running{model_name=\"demo\"} 1\n" in metrics()
    response.close()
    wait_until("nothing runs", lambda: (
        "running{model_name=\"demo\"} 0\n" in metrics()))


def a_signal_stops_it():
    """SIGTERM ends it with status 0"""
    at.worker.stop()
    assert at.worker.engine.status() == 0, at.worker.engine.tail()


def deadlines_are_told():
    """/metrics has the deadlines that were met and missed"""
    at.one(3000)
    met, missed = (int(re.search(
        rf"^stand_in:deadlines_{which}_total{{.*}} (\d+)$", metrics(),
        re.MULTILINE)[1]) for which in ("met", "missed"))
    assert met + missed > 0


def metrics():
    with urllib.request.urlopen(at.url + "/metrics",
                                timeout=WAIT_SECONDS) as response:
        return response.read().decode()


def main():
    global at
    directory = Path(tempfile.mkdtemp(prefix="kv-router-test-"))
    try:
        at = Fixture(directory)
        return tap.run([
            replay_gives_what_was_published,
            batches_are_published,
            a_reset_is_a_clear,
            streams_carry_usage,
            chat_is_tokenised_as_announced,
            mistakes_are_explained,
            other_requests_are_answered,
            each_port_is_an_engine,
            a_client_that_leaves_frees_its_place,
            deadlines_are_told,
            a_signal_stops_it])
    finally:
        if at:
            at.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
