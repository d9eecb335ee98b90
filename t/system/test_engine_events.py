#!/usr/bin/python3
"""Engines under random traffic: the index is what their events say; TAP.

The engines are the demo's, in processes of their own, asked directly, with a
kv-relay beside each.  The oracle listens to what the relays send to Redis and
knows nothing of libkvr.
"""

import asyncio
import json
import random
import re
import sys
import urllib.request

import aiohttp
import msgpack
from xxhash import xxh3_64_intdigest

from stage import BLOCK_SIZE, PATIENCE, SEED, Stage, wait_until
from model import Model, local_hashes, sequence_hashes
from relay import RELAY
from traffic import Loop, make_prompts
from worker import Worker

WORKERS = ("e1", "e2", "e3")
BLOCKS = 300                    # in a cache: fewer than the prompts have
LORA, SALT = "adapter-a", "tenant-7"
REQUESTS = 250
AT_ONCE = 8


class Play:
    """What all tests look at."""

    def __init__(self, stage, loop):
        self.rng = rng = random.Random(SEED)
        self.stage, self.loop = stage, loop
        self.prompts = make_prompts(rng, 12, 4, 20)
        self.kinds = [rng.choice(({}, {}, {}, {"model": LORA},
                                  {"cache_salt": SALT},
                                  {"model": LORA, "cache_salt": SALT}))
                      for _ in self.prompts]
        self.engines = {}
        stage.start_redis()
        self.workers = {}
        self.cleared = 0

    def start_engines(self):
        """Starts the engines; those of another seed name blocks otherwise."""
        for name, seed in zip(WORKERS, (0, 0, 5)):
            self.workers[name] = Worker(
                name, self.stage.directory, "--seed", str(seed),
                "--block-size", str(BLOCK_SIZE), "--blocks", str(BLOCKS),
                "--lora", LORA, "--prefill-us-per-token", "1",
                "--decode-us-per-token", "500")
        for name, worker in self.workers.items():
            worker.wait_ready()
            self.engines[name] = worker.address
            worker.start_relay(RELAY, self.stage.redis_url(),
                               "--listen", "127.0.0.1:0",
                               "--block-size", str(BLOCK_SIZE),
                               "--lora", LORA, "--salted", "on")

    def stop(self):
        """Ends the engines and the relays."""
        for worker in self.workers.values():
            worker.stop()

    def logs(self):
        """The envelopes of each worker's log, in order."""
        return {worker: [msgpack.unpackb(fields[b"m"]) for _, fields
                         in self.stage.redis.xrange("kv-log:{%s}" % worker)]
                for worker in WORKERS}

    def model(self):
        """What the snapshots and the logs behind them say that is held."""
        model = Model()
        for worker, log in self.logs().items():
            epoch, at_seq, parts, complete = self.pointer(worker)
            assert complete, (worker, epoch, at_seq)
            for part in range(parts):
                model.apply(worker, msgpack.unpackb(self.stage.redis.get(
                    f"kv-snap:{{{worker}}}:{epoch}-{at_seq}:{part}")))
            behind = [message for message in log
                      if (message[2], message[3]) > (epoch, at_seq)]
            for seq, message in enumerate(behind, at_seq + 1):
                assert message[:5] == ["kvr1", worker, epoch, seq, True], (
                    seq, message[:6])
                model.apply(worker, msgpack.unpackb(message[6]))
        return model

    def cursors(self):
        """Where the router has to come to."""
        return {worker: max([self.pointer(worker)[:2]]
                            + [(message[2], message[3]) for message in log])
                for worker, log in self.logs().items()}

    def pointer(self, worker):
        """The newest snapshot: epoch, seq, parts, complete."""
        fields = self.stage.redis.hgetall("kv-snap:{%s}" % worker)
        return tuple(int(fields[name]) for name in (
            b"epoch", b"seq", b"parts", b"complete"))

    def settle(self):
        """Waits until the logs are whole and the router has read them."""
        wait_until("the engines are idle", lambda: all(
            " 0\n" in line for line in self.running()), PATIENCE)
        wait_until("the relays have read all", lambda: not any(
            worker.replayed(self.told(worker) + 1)
            for worker in self.workers.values()), PATIENCE)
        def written():
            heads = self.cursors()
            return all(int(self.stage.redis.hget(
                "kv-worker:{%s}" % worker, "seq") or 0) == seq
                       for worker, (_, seq) in heads.items())
        wait_until("the logs are whole", written, PATIENCE)
        self.stage.wait_applied(self.cursors())

    @staticmethod
    def told(worker):
        """The number of the engine's last batch that Redis has."""
        port = re.search(r'msg="started".* listen=127.0.0.1:(\d+)',
                         worker.relay.log.read_text()).group(1)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics",
                                    timeout=PATIENCE) as answer:
            text = answer.read().decode()
        unsent, number = (int(re.search(
            rf"^kv_relay_{name} (\S+)$", text, re.M).group(1))
            for name in ("unsent", r'engine_seq\{rank="0"\}'))
        return -1 if unsent else number

    def running(self):
        """What the engines say of their running requests."""
        async def ask():
            async with aiohttp.ClientSession() as session:
                lines = []
                for address in self.engines.values():
                    async with session.get(
                            f"http://{address}/metrics") as response:
                        lines += re.findall(r"^vllm:num_requests_\w+{.*\n",
                                            await response.text(), re.M)
                return lines
        return self.loop.run(ask())

    async def complete(self, count, resets=0.1):
        """Random completions, some with a reset behind them; returns those
        that failed."""
        failed = []
        left = iter(range(count))

        async def client(session):
            for _ in left:
                number = self.rng.randrange(len(self.prompts))
                tokens = self.prompts[number]
                body = {"prompt": tokens[:self.rng.randrange(
                            len(tokens) // 2, len(tokens) + 1)],
                        "max_tokens": self.rng.randrange(1, 40),
                        "ignore_eos": True, **self.kinds[number]}
                address = self.rng.choice(list(self.engines.values()))
                async with session.post(f"http://{address}/v1/completions",
                                        json=body) as response:
                    await response.read()
                    if response.status != 200:
                        failed.append(response.status)
                if self.rng.random() < resets:
                    async with session.post(
                            f"http://{address}/reset_prefix_cache") as reset:
                        self.cleared += reset.status == 200

        async with aiohttp.ClientSession() as session:
            await asyncio.gather(*(client(session) for _ in range(AT_ONCE)))
        return failed


at = None                       # the Play, set by main()


def locals_of(tokens, kind):
    """The local hashes of a prompt, from the contract's own words."""
    seed = 1337
    if "model" in kind:
        seed += xxh3_64_intdigest(LORA.encode(), seed=0)
    if "cache_salt" in kind:
        seed += xxh3_64_intdigest(SALT.encode(), seed=1)
    return local_hashes(tokens, BLOCK_SIZE, seed % (1 << 64))


def query_of(tokens, kind):
    """The question of /kv/query for a prompt of that kind."""
    query = {"tokens": tokens}
    if "model" in kind:
        query["lora_name"] = LORA
    if "cache_salt" in kind:
        query["cache_salt"] = SALT
    return query


def requests_are_served():
    """random completions with LoRA and salts, evictions and resets"""
    at.start_engines()
    at.stage.start_nginx(at.engines)
    at.stage.wait_subscribed()
    failed = at.loop.run(at.complete(REQUESTS), 5 * PATIENCE)
    # the last resets may have come late: the caches are filled once more
    failed += at.loop.run(at.complete(REQUESTS // 3, resets=0),
                          5 * PATIENCE)
    assert not failed, failed
    at.settle()
    events = [event for log in at.logs().values() for message in log
              for event in msgpack.unpackb(message[6])]
    kinds = {kind: sum(1 for event in events if event[0] == kind)
             for kind in "src"}
    print(f"# events: {kinds}")
    assert kinds["s"] > 100 and kinds["r"] > 50, kinds
    assert kinds["c"] == at.cleared


def the_index_is_what_the_logs_say():
    """the index is what the engines' logs say, handle for handle"""
    model = at.model()
    print(f"# {model.count()} blocks are held")
    assert all(0 < len(holder.blocks) <= BLOCKS
               for holder in model.holders.values() if holder.block_of)
    assert model.count() > BLOCKS, model.count()
    at.stage.check_index(model)


def every_view_is_exact():
    """every engine's view is EXACT, without a gap and without a refusal"""
    for worker in WORKERS:
        seen = at.stage.wait_confidence(worker, "EXACT")
        assert not seen["refused"] and not seen["filtered"], seen
        assert not seen["counters"]["blocks_unknown"], seen


def hashes_are_the_contract_s():
    """/kv/hash gives the contract's hashes, with LoRA and salt"""
    for tokens, kind in zip(at.prompts, at.kinds):
        answer = json.loads(at.stage.call("POST", "/kv/hash",
                                          query_of(tokens, kind)))
        locals_ = locals_of(tokens, kind)
        assert list(map(int, answer["local"])) == locals_
        assert list(map(int, answer["sequence"])) == sequence_hashes(locals_)


def queries_answer_what_the_logs_say():
    """a query for each prompt answers what the logs say"""
    model = at.model()
    found = 0
    for tokens, kind in zip(at.prompts, at.kinds):
        answer = json.loads(at.stage.call("POST", "/kv/query",
                                          query_of(tokens, kind)))
        scores = {(score["worker_id"], score["dp_rank"]): (
            score["device"], score["host"], score["disk"])
                  for score in answer["scores"]}
        expected = model.scores(sequence_hashes(locals_of(tokens, kind)))
        assert scores == expected, (kind, scores, expected)
        found += len(scores)
    assert found > 10, found


def a_prompt_just_computed_is_known():
    """what an engine has just computed is known to its last whole block"""
    tokens = [at.rng.randrange(1 << 17) for _ in range(10 * BLOCK_SIZE + 3)]

    async def compute():
        async with aiohttp.ClientSession() as session:
            async with session.post(
                    f"http://{at.engines['e3']}/v1/completions",
                    json={"prompt": tokens, "max_tokens": 1}) as response:
                assert response.status == 200

    at.loop.run(compute())
    wait_until("it is known", lambda: at.stage.query(tokens) == {
        ("e3", 0): (10, 10, 10)}, PATIENCE)


def a_router_that_starts_late_learns_all():
    """a router started afterwards has the same index from the logs"""
    at.settle()
    at.stage.stop_nginx()
    at.stage.start_nginx(at.engines)
    at.settle()
    at.stage.check_index(at.model())
    every_view_is_exact()


def an_engine_that_restarts_begins_anew():
    """an engine killed and started again holds only what it says then"""
    worker = at.workers["e2"]
    before, epoch = at.model(), at.cursors()["e2"][0]
    worker.engine.signal(9)
    worker.engine.stop()
    worker.start_engine()
    worker.wait_ready()
    at.engines = {"e2": worker.address}
    failed = at.loop.run(at.complete(20), 5 * PATIENCE)
    assert not failed, failed
    wait_until("the new epoch is there",
               lambda: at.cursors()["e2"][0] > epoch, PATIENCE)
    at.settle()
    model = at.model()
    for name in ("e1", "e3"):
        assert model.holders[name, 0].blocks == before.holders[name, 0].blocks
    at.stage.check_index(model)
    at.stage.wait_confidence("e2", "EXACT")


def nothing_is_wrong_in_the_log():
    """the error log has no error and no alert"""
    at.stage.check_log()


def main():
    global at
    with Stage("engines") as stage, Loop() as loop:
        at = Play(stage, loop)
        try:
            return stage.run([
                requests_are_served,
                the_index_is_what_the_logs_say,
                every_view_is_exact,
                hashes_are_the_contract_s,
                queries_answer_what_the_logs_say,
                a_prompt_just_computed_is_known,
                a_router_that_starts_late_learns_all,
                an_engine_that_restarts_begins_anew,
                nothing_is_wrong_in_the_log])
        finally:
            at.stop()


if __name__ == "__main__":
    sys.exit(main())
