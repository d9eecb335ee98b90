#!/usr/bin/python3
"""What t/engines/value.py needs no engines for: its ways to route, its
conversations, kv-simulate's forecast, and tables; TAP."""

import contextlib
import http.server
import json
import sys
import threading

import stage
from stage import tap

sys.path.insert(0, str(stage.ROOT / "t" / "engines"))

import value                                                    # noqa: E402

SMALL = {"sessions": 6, "begin": 1, "systems": (2, 3), "turns": (2, 3),
         "add": (40, 80), "answer": 4, "think": (0.01, 0.02)}
SPEEDS = {"base": 0.03, "prefill": 0.001, "prefill_context": 0,
          "decode": 0.001, "decode_context": 0}
WORDS = ["model", "cache", "block"]
PROMPT, CACHED = 100, 64

USAGE = (b'data: {"usage":{"prompt_tokens":100,"completion_tokens":4,'
         b'"prompt_tokens_details":{"cached_tokens":64}}}\n\n'
         b'data: [DONE]\n\n')


class Answers(http.server.BaseHTTPRequestHandler):
    """An engine that always answers the same."""

    def do_POST(self):                                  # noqa: N802
        """Remembers whose request it was."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append(self.headers["x-session-id"])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(USAGE)

    def log_message(self, *_):
        """Says nothing."""


@contextlib.contextmanager
def routes():
    """The nginx of the run, and engines that always answer the same."""
    at = value.Routes(None)
    servers = [http.server.ThreadingHTTPServer(
        ("127.0.0.1", engine.port), Answers) for engine in
        at.engines.values()]
    with contextlib.ExitStack() as stack:
        stack.callback(stage.Stage.__exit__, at)
        for server in servers:
            server.seen = []
            threading.Thread(target=server.serve_forever).start()
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
        (at.directory / "model").symlink_to(
            stage.ROOT / "t/vectors/golden/model")
        at.start_redis()
        at.start_nginx({})
        yield at, servers


def requests_are_routed():
    """each way to route reaches engines, and a session the one of its hash"""
    talks = value.drawn("small", 1, WORDS)
    wanted = sum(len(talk["turns"]) for talk in talks)
    with routes() as (at, servers):
        for upstream in ("turns", "least", "estimates", "hashed"):
            for server in servers:
                server.seen.clear()
            found = [it for talk in value.sent(at, upstream, talks)
                     for it in talk]
            assert len(found) == wanted, (upstream, found)
            assert {(it["prompt"], it["cached"]) for it in found} == {
                (PROMPT, CACHED)}, found
            assert min(it["ttft"] for it in found) > 0, found
            assert sum(len(server.seen) for server in servers) == wanted
        for number, server in enumerate(servers):
            for session in server.seen:
                assert value.home_of(session) == number, session


def draws_are_the_same():
    """a seed's conversations are always the same, and share system prompts"""
    one, same, other = (value.drawn("small", seed, WORDS)
                        for seed in (1, 1, 2))
    assert one == same != other
    assert len({talk["system"] for talk in one}) == len(SMALL["systems"])
    assert len({talk["own"] for talk in one}) == SMALL["sessions"]
    for talk in one:
        blocks = SMALL["systems"][talk["parts"][0][0] - 1]
        assert talk["parts"][0][1] == blocks
        assert len(talk["system"].split()) == blocks * value.BLOCK + 16


def counters_are_read():
    """vLLM's counters of tokens are read, and nothing that looks like them"""
    assert value.counters_of(
        b'# HELP vllm:prefix_cache_queries_total x\n'
        b'vllm:prefix_cache_queries_total{engine="0"} 320.0\n'
        b'vllm:prefix_cache_queries_created{engine="0"} 1.7e+09\n'
        b'vllm:external_prefix_cache_hits_total{engine="0"} 9.0\n'
        b'vllm:prefix_cache_hits_total{engine="0"} 64.0\n') == (320, 64)


def forecasts_are_told():
    """kv-simulate gets the same conversations, and results are tables"""
    talks = value.drawn("small", 1, WORDS)
    lengths = [[200 + 100 * n for n in range(len(talk["turns"]))]
               for talk in talks]
    found = value.forecast(talks, lengths, SPEEDS)
    wanted = sum(len(talk["turns"]) for talk in talks)
    for _, policy in value.POLICIES.values():
        assert found[policy]["requests"] == wanted, found
        assert 0 < found[policy]["hit"] < 1, found
    text = value.tables(json.loads(json.dumps({
        "workloads": {"small": SMALL}, "runs": [
            {"workload": "small", "seed": 1, "policy": title,
             "measured": found[policy], "forecast": found[policy]}
            for title, (_, policy) in value.POLICIES.items()]})))
    for title in value.POLICIES:
        assert f"\n| {title} | " in text, text


def main():
    """The tests, in this order."""
    value.WORKLOADS["small"] = SMALL
    return tap.run([requests_are_routed, draws_are_the_same,
                    counters_are_read, forecasts_are_told])


if __name__ == "__main__":
    sys.exit(main())
