#!/usr/bin/python3
"""What is in flight over several processes of nginx; TAP.

The policy sends a request to the worker that its header names, and says of w0,
in the reason, how much of the prompt is in flight there.
"""

import contextlib
import http.client
import json
import random
import sys
import threading

import broken
import stage
from broken import Engine
from stage import BLOCK_SIZE, PATIENCE, SEED, wait_until

PROCESSES = 4                   # of nginx
BLOCKS = 40                     # of the longest prompt
CLIENTS, ROUNDS = 16, 12
POLICY = """{
                pick = function(self, ctx)
                    local to, said = 1, ""

                    for i = 1, #ctx.candidates do
                        local c = ctx.candidates[i]

                        if c.worker == "w0" then
                            said = c.in_flight .. " " .. c.additional_blocks
                        end

                        if c.worker == ctx.request.headers["x-to"] then
                            to = i
                        end
                    end

                    return to, nil, said
                end
            }"""


class Stage(broken.Stage):
    """All processes say who they are, and what w0 has in flight."""

    timeout = "60s"             # w0 holds requests until all processes answered

    def _write_conf(self, engines, policy, url, log):
        super()._write_conf(engines, policy, url, log)
        path = self.directory / "nginx.conf"
        path.write_text(path.read_text().replace(broken.ORDER, POLICY).replace(
            "add_header x-kv-reason", "add_header x-kv-process $pid; "
                                      "add_header x-kv-reason"))

    def send(self, worker, blocks, tail=0):
        """One request: its process, what w0 has in flight, would have more."""
        tokens = [1] * (blocks * BLOCK_SIZE) + [tail] * (tail * BLOCK_SIZE)
        connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/completions", json.dumps(
                {"prompt": tokens, "stream": True}), {"x-to": worker})
            response = connection.getresponse()
            response.read()
            assert response.status == 200, response.status
            return (response.headers["x-kv-process"],
                    *map(int, response.headers["x-kv-reason"].split()))

    def seen(self, blocks):
        """What each process has of a prompt: {(in flight, more)}."""
        answers = {}

        def all_asked():
            process, *answer = self.send("w1", blocks)
            answers[process] = tuple(answer)
            return len(answers) == PROCESSES

        wait_until("all processes have answered", all_asked, PATIENCE)
        return set(answers.values())

    def held(self, n):
        """Waits until w0 has n requests; its blocks."""
        def there():
            row = self.workers()["w0"]["load"][0]
            return row["active_requests"] == n and (row["decode_blocks"],)
        return wait_until(f"{n} requests at w0", there, PATIENCE)[0]


at = None                       # the stage, set by main()
w0 = None


@contextlib.contextmanager
def requests(*prompts):
    """So many requests that w0 holds, one after the other; the blocks that it
    has after each."""
    w0.mode = "held"
    threads, blocks = [], []
    try:
        for number, prompt in enumerate(prompts, 1):
            threads.append(threading.Thread(target=at.send,
                                            args=("w0", *prompt)))
            threads[-1].start()
            blocks.append(at.held(number))
        yield blocks
    finally:
        w0.release()
        for thread in threads:
            thread.join()


def all_processes_know():
    """what one process has in flight, all know, until it is over"""
    with requests((BLOCKS,)):
        assert at.seen(BLOCKS) == {(BLOCKS, 0)}, at.seen(BLOCKS)
        assert at.seen(12) == {(12, 0)}, at.seen(12)
    at.check_idle()
    assert at.seen(BLOCKS) == {(0, BLOCKS)}, at.seen(BLOCKS)


def blocks_count_once():
    """the blocks of several processes count once, and none in the end"""
    with requests((BLOCKS,), (12,), (BLOCKS,), (BLOCKS,), (20, 8),
                  (BLOCKS,)) as blocks:
        assert blocks == [40, 40, 40, 40, 48, 48], blocks
    at.check_idle()


def nothing_is_left():
    """of many prompts at once nothing is left"""
    rng = random.Random(SEED)
    w0.mode, w0.pause = "mixed", 0.1

    def client(seed):
        mine = random.Random(seed)
        for _ in range(ROUNDS):
            at.send("w0", mine.randrange(1, BLOCKS), mine.randrange(4))

    threads = [threading.Thread(target=client, args=(rng.random(),))
               for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    at.check_idle()
    assert at.seen(BLOCKS) == {(0, BLOCKS)}, at.seen(BLOCKS)
    index = at.status()["index"]
    assert index["load_below_zero"] == 0, index


def the_log_is_quiet():
    """the log is quiet"""
    at.check_log()


def main():
    """Runs the tests on one stage."""
    global at, w0
    stage.PROCESSES = PROCESSES
    with Stage("flights") as at, contextlib.ExitStack() as stack:
        w0, w1 = Engine("w0"), Engine("w1")
        for engine in (w0, w1):
            stack.callback(engine.die)
        at.start_nginx({engine.name: engine.address for engine in (w0, w1)},
                       "order")
        return at.run([all_processes_know, blocks_count_once,
                       nothing_is_left, the_log_is_quiet])


if __name__ == "__main__":
    sys.exit(main())
