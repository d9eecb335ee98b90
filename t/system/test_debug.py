#!/usr/bin/python3
"""With "error_log ... debug" nginx tells what it does, in order; TAP."""

import os
import random
import re
import sys

os.environ["KVR_PROCESSES"] = "1"       # for stage.py

import msgpack                                                  # noqa: E402
import redis                                                    # noqa: E402

from stage import (BLOCK_SIZE, PATIENCE, SEED, Stage,           # noqa: E402
                   milliseconds, wait_until)
from traffic import (Cache, Engines, Loop, Stream, le64,        # noqa: E402
                     make_prompts)

PASSWORD = "sEsAmE-0pen"
NOWHERE = "127.0.0.1:9"         # nobody listens there
PROBES = """\
    kv_router_health  main check=/health fails=1000 interval=200ms;
    kv_router_scrape  main interval=200ms;
"""                             # neither URI is one of the engines'
BLOCKS = 4                      # of each prompt


class DebugStage(Stage):
    """Its nginx logs all that it has to say."""

    def _write_conf(self, engines, policy, url, log):
        super()._write_conf(engines, policy, url, log)
        conf = self.directory / "nginx.conf"
        text = conf.read_text()
        level = f"{log} notice;"
        assert level in text, text
        redis_line = "    kv_router_redis "
        assert redis_line in text, text
        conf.write_text(text.replace(level, f"{log} debug;").replace(
            redis_line, PROBES + redis_line))


class Play:
    """What all tests look at."""

    def __init__(self, stage, loop):
        self.stage = stage
        self.seen = 0           # bytes of the log
        rng = random.Random(SEED)
        self.prompts = make_prompts(rng, 1, 2, BLOCKS)
        engines = Engines(loop, ("w1", "w2")).addresses
        engines["dead"] = NOWHERE
        stage.start_redis("--requirepass", PASSWORD, client=redis.Redis(
            host="127.0.0.1", port=stage.redis_port, password=PASSWORD))
        self.streams = {worker: Stream(
            stage.redis, Cache(worker, rng, self.prompts), milliseconds())
            for worker in engines}
        stage.start_nginx(engines, url="redis://%s@127.0.0.1:%d" % (
            PASSWORD, stage.redis_port))

    def store(self, worker, **options):
        """A message: the worker stores the first prompt."""
        stream = self.streams[worker]
        sequence = stream.cache.sequences[0]
        stream.send_events([["s", 0, 0, None, le64(sequence.handles),
                             le64(sequence.locals)]], **options)

    def clear(self, worker):
        """The worker has nothing any more."""
        self.streams[worker].send_events([["c", 0]])
        self.stage.wait_applied(self.streams[worker].cursor())

    def said(self):
        """The lines of kv_router that were not seen by an earlier story."""
        return [line for line in self.stage.log()[self.seen:].splitlines()
                if "kv_router" in line]

    def story(self, *patterns):
        """Waits until the log has lines like these, in this order."""
        missing = patterns

        def told():
            nonlocal missing
            left = list(patterns)
            for line in self.said():
                if left and re.search(left[0], line):
                    del left[0]
            missing = left
            return not left

        try:
            wait_until("the log tells it", told, PATIENCE)
        except Exception as err:
            raise AssertionError("\n".join(
                [f"{err}: no {missing[0]!r} in", *self.said()])) from err

    def begin(self):
        """A story of what is to come begins."""
        self.seen = len(self.stage.log())

    def complete(self):
        """A completion of the first prompt."""
        return self.stage.call("POST", "/v1/completions", {
            "prompt": self.prompts[0], "max_tokens": 1})


at = None                       # the Play, set by main()


def a_connection_tells_its_states():
    """Redis: connected, logged in, subscribed; and the members are read"""
    at.stage.wait_subscribed()
    url = r'redis://\*\*\*@127\.0\.0\.1:\d+'
    at.story(
        r'zone "main": this process now applies events',
        rf'zone "main": redis events: connects to "{url}" at 127\.0\.0\.1:',
        r'redis events: connected',
        r'redis events: logs in, user "", a password, database 0',
        r'redis events: ready',
        r'subscribed to "kv-events:\*"',
        r'redis members: connects to',
        r'redis members: ready',
        r'poll 1 of the members begins',
        r'poll 1 of the members ends: 0 known, 0 newly absent',
        r'leases of shards 1 are held')
    at.story(r'workers resynchronized: 3, with lost events: 0')


def a_repair_tells_its_steps():
    """what a repair asks of the log, what it gets, and where it ends"""
    at.begin()
    at.store("w1")
    at.store("w1", live=False)
    at.store("w1", live=False)
    at.store("w1")
    stream = at.streams["w1"]
    at.stage.wait_applied(stream.cursor())
    name = r'zone "main": repair of worker "w1"'
    epoch = stream.epoch
    at.story(
        r'message of worker "w1", \d+ bytes, is applied',
        r'gap before a message of worker "w1"$',
        rf'{name} starts$',
        rf'{name} asks: XREVRANGE kv-log:{{w1}}',
        rf'{name} is answered: array of 1$',
        rf'{name}: its log ends at {epoch}-4, its view is at {epoch}-1',
        rf'{name} asks: HMGET kv-snap:{{w1}}',
        rf'{name} is answered: array of 8$',
        rf'{name}: it has no snapshot',
        rf'{name}: its log is read from behind {epoch}-1',
        rf'{name} asks: XRANGE kv-log:{{w1}}',
        rf'{name} is answered: array of 3$',
        rf'{name}: page of 3 entries is read, up to {epoch}-4',
        rf'{name} ends at {epoch}-4$')


def a_snapshot_tells_its_parts():
    """a log that begins too late, and the snapshot that is loaded instead"""
    stream, client = at.streams["w2"], at.stage.redis
    at.store("w2")
    at.stage.wait_applied(stream.cursor())
    at.begin()
    at.store("w2", live=False)
    sequence = stream.cache.sequences[0]
    epoch, seq = stream.epoch, stream.seq
    client.set("kv-snap:{w2}:%d-%d:0" % (epoch, seq), msgpack.packb(
        [["s", 0, 0, None, le64(sequence.handles), le64(sequence.locals)]]))
    client.hset("kv-snap:{w2}", mapping={
        "version": 1, "epoch": epoch, "seq": seq, "complete": 1, "parts": 1,
        "blocks": 0, "block_size": BLOCK_SIZE, "engine_seq": "{}"})
    at.store("w2", live=False)
    client.xtrim(stream.log_key, maxlen=1, approximate=False)
    stream.heartbeat()
    at.stage.wait_applied(stream.cursor())
    name = r'zone "main": repair of worker "w2"'
    at.story(
        rf'{name} starts$',
        rf'{name}: its log ends at {epoch}-3, its view is at {epoch}-1',
        rf'{name}: its snapshot is of no use',
        rf'{name}: its log is read from behind {epoch}-1',
        rf'{name}: its log goes on with 3, 1 is applied, a snapshot is needed',
        rf'{name}: its snapshot is at {epoch}-2, 1 parts',
        rf'{name} asks: GETRANGE kv-snap:{{w2}}:{epoch}-2:0',
        rf'{name} is answered: string of \d+',
        rf'{name}: part 1 of 1 is aside',
        rf'snapshot {epoch}-2 of worker "w2" is loaded',
        rf'{name} asks: XRANGE kv-log:{{w2}}',
        rf'{name}: page of 1 entries is read, up to {epoch}-3',
        rf'{name} ends at {epoch}-3$')


def a_request_tells_its_way():
    """a request: its body, who has its prompt, the choice, and its end"""
    at.clear("w2")
    at.begin()
    at.complete()
    at.story(
        rf'kv_router body: form \w+, token ids, {BLOCKS * BLOCK_SIZE} tokens',
        rf'kv_router match: worker "w1" rank 0 has {BLOCKS} blocks, '
        r'4 with host, 4 with disk; it is ok',
        rf'kv_router match: prompt of {BLOCKS * BLOCK_SIZE} tokens, '
        rf'{BLOCKS} blocks; 3 candidates and 0 that are out, '
        rf'best {BLOCKS} blocks',
        r'kv_router policy "kv_cost" chose worker "w1" rank 0 because of '
        r'policy: ',
        rf'kv_router reservation: worker "w1" rank 0, 0 tokens to prefill, '
        rf'{BLOCKS} blocks',
        r'kv_router peer: worker "w1" rank 0 at "127\.0\.0\.1:\d+", try 1, '
        r'2 candidates left',
        r'kv_router first byte, \d+ us after the decision',
        r'kv_router health: worker "w1": answered',
        r'kv_router attempt: at worker "w1" ended: answered, pause 0',
        r'kv_router release: the request, 0 blocks streamed')


def a_retry_tells_why():
    """a try that fails, and the next one"""
    at.store("dead")
    at.stage.wait_applied(at.streams["dead"].cursor())
    at.stage.call("POST", "/kv/workers/w1/drain")
    at.begin()
    at.complete()
    at.story(
        r'kv_router policy "kv_cost" chose worker "dead"',
        r'kv_router peer: worker "dead" rank 0 .*, try 1, 1 candidates left',
        r'kv_router attempt: at worker "dead" ended: connect, pause 0',
        r'kv_router health: worker "dead": connect',
        r'kv_router retry: the next worker',
        r'kv_router release: the request',
        r'kv_router reservation: worker "w2" rank 0, '
        rf'{BLOCKS * BLOCK_SIZE} tokens to prefill',
        r'kv_router peer: worker "w2" rank 0 .*, try 2, 0 candidates left',
        r'kv_router attempt: at worker "w2" ended: answered',
        r'kv_router release: the request')


def a_registration_tells_what_is_new():
    """registrations: what is read, and what is new in it"""
    at.begin()
    at.stage.redis.hset("kv-worker:{w3}", "block_size", BLOCK_SIZE)
    at.stage.redis.pexpire("kv-worker:{w3}", 60000)
    at.stage.redis.sadd("kv-workers", "w3")
    name = r'registration of worker "w3"'
    at.story(
        r'poll \d+ of the members begins',
        rf'{name} is read, ttl [1-5]\d{{4}} ms',
        rf'{name}: new',
        r'poll \d+ of the members ends: 1 known, 0 newly absent',
        rf'{name}: as before')


def probes_tell_their_answers():
    """checks, and what engines tell of their load: asked, and answered"""
    at.begin()
    at.story(
        r'check of worker "w1": GET "/health" at "127\.0\.0\.1:\d+"',
        r'check of worker "w1": status \d+, not 200')
    at.story(
        r'load of worker "w1": GET "/metrics" at "127\.0\.0\.1:\d+"',
        r'load of worker number \d+: status \d+, not 200')


def an_outage_tells_its_tries():
    """Redis is gone: why each connection is closed, and when it is back"""
    at.begin()
    at.stage.stop_redis()
    at.story(
        r'redis (events|members|logs): closed, redis closed the connection; '
        r'the next try is in \d+ ms',
        r'redis events: closed, .*; the next try is in \d+ ms')


def nothing_private_is_said():
    """neither the password nor token ids are in the log"""
    log = at.stage.log()
    assert PASSWORD not in log
    first = at.prompts[0][:2]
    lines = [line for line in log.splitlines() if "kv_router" in line
             and re.search(r"\b%d\b.*\b%d\b" % tuple(first), line)]
    assert not lines, lines


def main():
    global at
    with DebugStage("debug") as stage, Loop() as loop:
        at = Play(stage, loop)
        return stage.run([
            a_connection_tells_its_states,
            a_repair_tells_its_steps,
            a_snapshot_tells_its_parts,
            a_request_tells_its_way,
            a_retry_tells_why,
            a_registration_tells_what_is_new,
            probes_tell_their_answers,
            an_outage_tells_its_tries,
            nothing_private_is_said])


if __name__ == "__main__":
    sys.exit(main())
