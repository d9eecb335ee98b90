#!/usr/bin/python3
"""Echoes: engines that store what was hashed, and engines that don't; TAP."""

import http.client
import json
import os
import random
import re
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from stage import (BLOCK_SIZE, DECIDED, PATIENCE, SEED, Stage, decision,
                   milliseconds, wait_until)
from traffic import Cache, Sequence, Stream, le64

BLOCKS = 6                      # of a prompt, and some tokens more
COMPLETIONS = "/v1/completions"
ROUTE = "completions_ids"
LONGEST = 2048                  # blocks of a prompt that is looked at
FLOOD = 64                      # of the longest ones: too many at once
BEAT = 0.5                      # seconds between heartbeats

at = None                       # the stage, set by main()
engines = {}                    # by the worker's id
rng = random.Random(SEED)


class EchoStage(Stage):
    """Requests say which worker they go to."""

    def _write_conf(self, *args):
        super()._write_conf(*args)
        path = self.directory / "nginx.conf"
        conf = path.read_text()
        for old, new in (
                ("{ router:access() }", "{ router:access{ workers = "
                 "ngx.var.http_x_worker } } " + DECIDED),
                ('tokenizer = "remote",', 'tokenizer = "auto",')):
            assert old in conf, conf
            conf = conf.replace(old, new)
        path.write_text(conf)


class Engine:
    """An engine and its publisher: it stores the blocks of what it answers.

    changed  the number of the block from which on it has other tokens
    late     seconds after the answer, when it says what it stored
    rank     of the blocks
    silent   it answers, and says nothing
    empty    it answers, and stores nothing
    status   of its answers
    asked    how often it was asked to tokenize a request: the probe's texts
             are not counted; None: it can't
    """

    def __init__(self, worker, rank=0, version="0.32.0"):
        self.changed = None
        self.late = 0
        self.rank = rank
        self.silent = self.empty = False
        self.status = 200
        self.complete = True
        self.asked = None
        self.held = set()
        self.lock = threading.Lock()
        self.closing = threading.Event()
        cache = Cache(worker, rng, [])
        self.stream = Stream(at.redis, cache, milliseconds())
        engine = self

        class Handler(BaseHTTPRequestHandler):
            """One connection."""

            protocol_version = "HTTP/1.1"

            def do_GET(self):           # pylint: disable=invalid-name
                """The router's probe: a vLLM."""
                answer = {"/version": {"version": version}, "/v1/models": {
                    "data": [{"id": "m", "owned_by": "vllm"}]}}.get(self.path)
                self.answer(200 if answer else 404, json.dumps(answer))

            def do_POST(self):          # pylint: disable=invalid-name
                """A completion."""
                data = self.rfile.read(int(self.headers["Content-Length"]))
                body = {} if engine.empty else json.loads(data)
                tokens = engine.tokens_of(body)
                if self.path == "/tokenize" and engine.asked is not None:
                    engine.asked += bool(tokens)
                    self.answer(200, json.dumps({"tokens": tokens or [1]}))
                    return
                if not self.path.endswith("/completions"):
                    self.answer(404)
                    return
                if tokens and not engine.late:
                    engine.store(tokens)
                self.answer(engine.status)
                if tokens and engine.late:
                    threading.Timer(engine.late, engine.store,
                                    (tokens,)).start()

            def answer(self, status, text="{}"):
                """Sends JSON."""
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):  # pylint: disable=arguments-differ
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = "127.0.0.1:%d" % self.server.server_port
        threading.Thread(target=self.server.serve_forever,
                         daemon=True).start()
        self.beats = threading.Thread(target=self._beat, daemon=True)
        self.beats.start()

    @staticmethod
    def tokens_of(body):
        """The token ids in a body."""
        return body.get("prompt") or body.get(
            "kv_transfer_params", {}).get("prompt_token_ids")

    def store(self, tokens):
        """Says which blocks it stored now."""
        tokens = list(tokens)
        if self.changed is not None:
            tokens[self.changed * BLOCK_SIZE] += 1
        sequence = Sequence(tokens)
        handles, locals_ = sequence.handles, sequence.locals
        with self.lock:
            first = 0
            while first < len(handles) and handles[first] in self.held:
                first += 1
            if first == len(handles) or self.silent:
                return
            self.held.update(handles)
            self.stream.send_events([[
                "s", self.rank, 0, handles[first - 1] if first else None,
                le64(handles[first:]), le64(locals_[first:])]])

    def restart(self):
        """A new epoch and an empty cache."""
        with self.lock:
            self.stream.epoch += 1
            self.stream.seq = 0
            self.held.clear()

    def clear(self):
        """Empties the cache."""
        with self.lock:
            self.held.clear()
            self.stream.send_events([["c", self.rank]])

    def close(self):
        """No more answers, and no more events."""
        self.closing.set()
        self.beats.join()
        self.server.shutdown()
        self.server.server_close()

    def _beat(self):
        while not self.closing.wait(BEAT):
            with self.lock:
                if not self.silent:
                    self.stream.heartbeat()


# ------------------------------------------------------------------- requests

def prompt(blocks=BLOCKS, rest=5):
    """A prompt that nobody has seen."""
    return [rng.randrange(1 << 17) for _ in range(blocks * BLOCK_SIZE + rest)]


def body_of(path, tokens):
    """The body of a request with token ids, as vLLM has it."""
    return json.dumps({"prompt": tokens} if path == COMPLETIONS else {
        "messages": [], "kv_transfer_params": {"prompt_token_ids": tokens}})


def ask(worker, n=1, tokens=None, status=200, path=COMPLETIONS):
    """So many requests to a worker."""
    connection = http.client.HTTPConnection("127.0.0.1", at.port,
                                            timeout=PATIENCE)
    body = tokens and body_of(path, tokens)
    for _ in range(n):
        connection.request("POST", path, body or body_of(path, prompt()),
                           {"x-worker": worker})
        response = connection.getresponse()
        response.read()
        assert response.status == status, response.status
        decided = decision(response.getheader("x-decided"))
        assert decided["worker"] == worker, decided
    connection.close()


def cell(worker, route=ROUTE):
    """What the status page says of a worker's route."""
    for echo in at.workers()[worker]["echo"]:
        if echo["route"] == route:
            return echo
    return {"trust": "shadow", "full": 0, "parted": 0, "mismatches": 0}


def waits(worker, full=0, parted=0, route=ROUTE):
    """Until there were so many echoes; returns the route's cell."""
    wanted = (full, parted)
    try:
        return wait_until(f"{worker} has {wanted}", lambda: (
            lambda echo: (echo["full"], echo["parted"]) == wanted and echo)(
                cell(worker, route)), PATIENCE)
    except Exception as err:
        raise AssertionError(f"{err}: {at.workers()[worker]['echo']}, "
                             f"{at.status()['echoes']}") from err


def echoes(name):
    """A counter of the zone."""
    return at.status()["echoes"][name]


def metric(name, **labels):
    """The value of a metric; None: there is no such sample."""
    text = at.call("GET", "/status?format=prometheus").decode()
    for line in text.splitlines():
        if line.startswith(f"kv_router_{name}{{") and all(
                f'{key}="{value}"' in line for key, value in labels.items()):
            return int(line.rsplit(" ", 1)[1])
    return None


def told(worker):
    """The lines of the log that say that a worker has other blocks."""
    return re.findall(rf'\[error\][^\n]*worker "{worker}" stored other blocks'
                      r'[^\n]*', at.log())


# ---------------------------------------------------------------------- tests

def full_echoes_prove():
    """20 full echoes prove a route"""
    ask("w1", 19)
    assert waits("w1", full=19)["trust"] == "shadow"
    ask("w1")
    assert waits("w1", full=20)["trust"] == "proven"
    ask("w1")
    waits("w1", full=21)
    assert metric("worker_trust", worker="w1", route=ROUTE,
                  state="proven") == 1
    assert cell("w1")["mismatches"] == 0


def routes_are_apart():
    """the same ids on another path are another route"""
    ask("w1", path="/v1/chat/completions")
    assert waits("w1", full=1, route="chat_ids")["trust"] == "shadow"
    assert cell("w1")["full"] == 21


def late_events_count():
    """events that come three seconds after the answer are not missed"""
    engines["w1"].late = 3
    ask("w1", 5)
    assert waits("w1", full=26)["trust"] == "proven"
    engines["w1"].late = 0


def repeats_count():
    """a prompt whose blocks were there before echoes, too"""
    tokens = prompt()
    ask("w1", 2, tokens)
    waits("w1", full=28)


def the_last_block_may_come_later():
    """a block that ends with the prompt need not be there at once"""
    engines["w1"].changed = BLOCKS - 1
    ask("w1", 1, prompt(rest=0))
    waits("w1", full=29)
    engines["w1"].changed = None


def any_rank_will_do():
    """of a worker with several ranks the best one counts"""
    ask("ranks", 3)
    waits("ranks", full=3)


def nothing_is_proven_by_failures():
    """errors, short prompts, long ones and cleared caches prove nothing"""
    kept, void, long_ = echoes("kept"), echoes("void"), echoes("long")
    engines["w1"].status = 500
    ask("w1", 3, status=500)
    engines["w1"].status = 200
    ask("w1", 1, prompt(0, 9))
    ask("w1", 1, prompt(1, 0))
    assert echoes("kept") == kept
    ask("w1", 1, prompt(LONGEST + 1))
    assert (echoes("kept"), echoes("long")) == (kept, long_ + 1)
    engines["w1"].changed = 1
    ask("w1", 2)
    engines["w1"].clear()
    wait_until("both are void", lambda: echoes("void") == void + 2, PATIENCE)
    engines["w1"].changed = None
    assert (cell("w1")["full"], cell("w1")["parted"]) == (29, 0)


def silence_proves_nothing():
    """nor is a worker that says nothing any more"""
    void = echoes("void")
    engines["w1"].silent = True
    ask("w1", 2)
    wait_until("both are void", lambda: echoes("void") == void + 2, PATIENCE)
    engines["w1"].silent = False
    at.wait_confidence("w1", "EXACT")
    assert cell("w1")["parted"] == 0


def a_degraded_worker_proves_nothing():
    """nor one whose events have a gap"""
    kept = echoes("kept")
    engine = engines["gaps"]
    ask("gaps")
    waits("gaps", full=1)
    with engine.lock:
        engine.stream.send_events([["c", 0]], log=False, live=False)
        engine.stream.send_events([["c", 1]])
    at.wait_confidence("gaps", "DEGRADED")
    ask("gaps", 2)
    assert echoes("kept") == kept + 1


def other_tokens_are_never_proven():
    """an engine with other tokens is never proven, and the log says why"""
    engine = engines["other"]
    engine.changed = 4
    ask("other", 10)
    assert waits("other", parted=10)["trust"] == "shadow"
    assert not told("other")
    ask("other", 10)
    echo = waits("other", parted=20)
    assert (echo["trust"], echo["mismatches"]) == ("mismatch", 1), echo
    assert (echo["parted_after"], echo["parted_blocks"]) == (4, BLOCKS), echo
    lines = told("other")
    assert len(lines) == 1, lines
    assert (f'a fifth of the last echoes of route "{ROUTE}" have parted, the '
            f"last one after 4 of {BLOCKS} blocks: are the tokenizer, "
            in lines[0]), lines


def tokens_may_be_repaired():
    """when its tokens are those again, 20 full echoes prove it"""
    engines["other"].changed = None
    ask("other", 20)
    assert waits("other", full=20, parted=20)["trust"] == "proven"


def trust_can_be_lost():
    """a proven route is in shadow again when a fifth of its echoes part"""
    engine = engines["w1"]
    engine.changed = 0
    ask("w1", 10)
    assert waits("w1", full=29, parted=10)["trust"] == "proven"
    ask("w1", 1)
    echo = waits("w1", full=29, parted=11)
    assert echo["trust"] == "mismatch" and echo["parted_after"] == 0, echo
    engine.changed = None
    ask("w1", 20)
    assert waits("w1", full=49, parted=11)["trust"] == "proven"
    assert len(told("w1")) == 1, told("w1")


def a_reload_keeps_it():
    """a reload keeps the trust, and forgets no more than some echoes"""
    before = at.children()
    at.reload()
    wait_until("the old processes are gone",
               lambda: not before & at.children(), PATIENCE)
    at.wait_subscribed()
    at.wait_confidence("w1", "EXACT")
    assert cell("w1")["trust"] == "proven"
    ask("w1", 2)
    assert waits("w1", full=51, parted=11)["trust"] == "proven"


def killed_processes_do_no_harm():
    """nor do processes that are killed while echoes wait"""
    ask("w1", 10)
    for pid in at.children():
        os.kill(pid, signal.SIGKILL)
    at.wait_lease()
    at.wait_confidence("w1", "EXACT")
    echo = cell("w1")
    assert (echo["trust"], echo["parted"]) == ("proven", 11), echo
    ask("w1", 3)
    waits("w1", full=echo["full"] + 3, parted=11)


def a_restarted_worker_begins_anew():
    """a worker that was restarted is in shadow until it is proven again"""
    engine = engines["w1"]
    engine.restart()
    engine.store(prompt())
    at.wait_applied(engine.stream.cursor())
    at.wait_confidence("w1", "EXACT")
    full = cell("w1")["full"]
    assert cell("w1")["trust"] == "shadow"
    ask("w1", 2)
    assert waits("w1", full=full + 2, parted=11)["trust"] == "shadow"
    ask("w1", 18)
    assert waits("w1", full=full + 20, parted=11)["trust"] == "proven"


def floods_are_sampled():
    """of too many answers some are looked at, and the rest is counted"""
    engines["other"].empty = True
    tokens = prompt(LONGEST)
    before = at.status()["echoes"]
    asked = 0
    while echoes("dropped") == before["dropped"]:
        ask("other", FLOOD, tokens)
        asked += FLOOD
        assert asked < 100 * FLOOD, at.status()["echoes"]
    after = at.status()["echoes"]
    kept = after["kept"] - before["kept"]
    assert kept + after["dropped"] - before["dropped"] == asked, (
        before, after, asked)
    wait_until("all have ended", lambda: cell("other")["parted"]
               + echoes("void") == 20 + before["void"] + kept, PATIENCE)
    engines["other"].empty = False
    ask("other", 1)
    waits("other", full=21, parted=20 + kept)
    assert len(told("other")) == 2, told("other")


def the_log_is_clean():
    """nothing else was said"""
    at.check_log(r"signal 9", r"no events", r"is lost")


def main():
    """Runs the tests on one stage."""
    global at
    with EchoStage("echo") as at:
        at.start_redis()
        for worker in ("w1", "other", "gaps"):
            engines[worker] = Engine(worker)
        engines["ranks"] = Engine("ranks", rank=1, version="0.31.0")
        at.start_nginx({
            worker: engine.address + (" ranks=2" if engine.rank else "")
            for worker, engine in engines.items()})
        at.wait_subscribed()
        for worker, engine in engines.items():
            engine.store(prompt())
            at.wait_confidence(worker, "EXACT")
        status = at.run([
            full_echoes_prove, routes_are_apart, late_events_count,
            repeats_count, the_last_block_may_come_later, any_rank_will_do,
            nothing_is_proven_by_failures, silence_proves_nothing,
            a_degraded_worker_proves_nothing, other_tokens_are_never_proven,
            tokens_may_be_repaired, trust_can_be_lost, a_reload_keeps_it,
            killed_processes_do_no_harm, a_restarted_worker_begins_anew,
            floods_are_sampled, the_log_is_clean])
        for engine in engines.values():
            engine.close()
        return status


if __name__ == "__main__":
    sys.exit(main())
