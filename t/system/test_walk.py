#!/usr/bin/python3
"""The request that CONTRIBUTING.md walks with is routed as told there; TAP."""

import json
import os
import re
import sys

os.environ["KVR_PROCESSES"] = "1"       # for stage.py

from aiohttp import web                                         # noqa: E402

from stage import PATIENCE, ROOT, Stage, wait_until             # noqa: E402
from traffic import Cache, Engines, Loop, Stream, le64          # noqa: E402

TITLE = "## A request, with its numbers\n"
IDS = list(range(1, 65))
HELD = {"w1": 3, "w2": 1}               # blocks of the prompt
BODY = {"model": "m", "prompt": IDS, "max_tokens": 1}
USAGE = {"prompt_tokens": 64, "completion_tokens": 1, "total_tokens": 65,
         "prompt_tokens_details": {"cached_tokens": 48}}
REQUEST = ROOT / "ngx_module" / "request"

at = None                               # the Walk, set by main()


class WalkStage(Stage):
    """With all debug messages, and a policy whose costs are whole numbers."""

    def _write_conf(self, engines, policy, url, log):
        super()._write_conf(engines, policy, url, log)
        conf = self.directory / "nginx.conf"
        conf.write_text(conf.read_text().replace(
            f"{log} notice;", f"{log} debug;").replace(
            "policy_conf = nil", "policy_conf = { churn = 0 }"))


class Answers(Engines):
    """Engines that tell what they had cached."""

    async def _complete(self, request):
        return web.json_response({"choices": [{"text": "x"}], "usage": USAGE})


class Walk:
    """The section, and what the router says."""

    def __init__(self, stage, loop):
        page = (ROOT / "CONTRIBUTING.md").read_text()
        assert TITLE in page, TITLE
        self.text = page.split(TITLE)[1].split("\n## ")[0]
        self.stage = stage
        stage.start_redis()
        caches = {worker: Cache(worker, None, [IDS]) for worker in HELD}
        streams = {worker: Stream(stage.redis, cache, 1)
                   for worker, cache in caches.items()}
        stage.start_nginx(Answers(loop, tuple(HELD)).addresses)
        for worker, n in HELD.items():
            first = caches[worker].sequences[0]
            streams[worker].send_events([["s", 0, 0, None,
                                          le64(first.handles[:n]),
                                          le64(first.locals[:n])]])
            stage.wait_applied(streams[worker].cursor())

    def plain(self):
        """The log's lines of kv_router, from the last request on, with words
        for what differs each time."""
        said = []
        for line in self.stage.log().splitlines():
            found = re.search(r"\*\d+ (kv_router .*?)(, client: .*)?$", line)
            if found:
                said.append(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT",
                                   re.sub(r"\d+ us\b", "N us", found[1])))
        return said


def names_are_those_of_the_code():
    """each file and function that the walk names is there"""
    step = re.findall(r"^\d\. \*\*(\w+)\*\*", at.text, re.M)
    assert step == ["body", "prompt", "keys", "found", "choice", "try",
                    "answer"], step
    lua = (ROOT / "lua" / "resty" / "kv_router.lua").read_text()
    for part in re.split(r"^\d\. ", at.text, flags=re.M)[1:]:
        code = "".join(
            (REQUEST / f"ngx_http_kv_router_{name}.c").read_text()
            for name in re.findall(r"`(\w+)\.c`", part))
        for name in re.findall(r"`(\w+)\(\)`", part):
            assert f"\nngx_http_kv_router_{name}(" in code, name
    for name in re.findall(r"`router:(\w+)\(\)`", at.text):
        assert f"\nfunction router:{name}(" in lua, name


def numbers_are_what_the_router_says():
    """the blocks, overlaps and costs that POST /route answers"""
    answer = json.loads(at.stage.call("POST", "/kv/route", BODY))
    hashes = json.loads(at.stage.call("POST", "/kv/hash", {"tokens": IDS}))
    assert f"`{hashes['local'][0]}`" in at.text, hashes
    assert (answer["prompt_tokens"], answer["prompt_blocks"],
            answer["block_size"], answer["chosen"]["worker_id"]) == (
                64, 4, 16, "w1"), answer
    for candidate in answer["candidates"]:
        told = "`%s` has %d and costs %g" % (
            candidate["worker_id"], candidate["overlap"]["device"],
            candidate["cost"])
        assert told in " ".join(at.text.split()), told


def the_log_tells_the_walk():
    """the debug log of the request has the lines of the walk, in their order"""
    at.stage.call("POST", "/v1/completions", BODY)
    walk = re.findall(r"^ +(kv_router .*)$", at.text, re.M)
    assert len(walk) >= 7, walk
    wait_until("the request has ended", lambda: any(
        "kv_router usage" in line for line in at.plain()), PATIENCE)
    left = list(walk)
    for line in at.plain():
        if left and line == left[0]:
            del left[0]
    assert not left, "\n".join([f"no {left[0]!r} in", *at.plain()])


def main():
    global at
    with WalkStage("walk") as stage, Loop() as loop:
        at = Walk(stage, loop)
        return stage.run([names_are_those_of_the_code,
                          numbers_are_what_the_router_says,
                          the_log_tells_the_walk])


if __name__ == "__main__":
    sys.exit(main())
