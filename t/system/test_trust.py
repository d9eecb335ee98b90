#!/usr/bin/python3
"""Trust: when the ids of a zone's model are used, and when not; TAP."""

import http.client
import json
import sys

import test_echo
from stage import PATIENCE, decision, wait_until
from test_echo import (BLOCKS, EchoStage, Engine, cell, echoes, prompt, told,
                       waits)

CHAT = "/v1/chat/completions"
LOCAL = "chat_local"            # the route of the model's ids
REMOTE = "chat"                 # that of an engine's

# Stands in for a model of the zone: a token is a number in the text of a chat.
MODEL = """
        local ffi = require "ffi"

        router.tokenizer.model = {
            tokenize = function()
                local list = {}
                local text = ngx.req.get_body_data()

                for id in text:match('"content": "([^"]*)"'):gmatch("%d+") do
                    list[#list + 1] = tonumber(id)
                end

                return { tokens = ffi.new("uint32_t[?]", #list, list),
                         n = #list, drop = function() end }
            end
        }
"""

at = None                       # the stage, set by main()
engines = {}                    # by the worker's id


class TrustStage(EchoStage):
    """The router has a model."""

    def _write_conf(self, *args):
        super()._write_conf(*args)
        path = self.directory / "nginx.conf"
        conf = path.read_text()
        for old, new in (
                ('tokenizer = "auto",', 'tokenizer = "auto", '
                 f"tokenizer_timeout = {PATIENCE},"),
                ("        })\n    }\n", f"        }})\n{MODEL}    }}\n")):
            assert conf.count(old) == 1, conf
            conf = conf.replace(old, new)
        path.write_text(conf)


class ChatEngine(Engine):
    """An engine whose template puts nothing before a chat.

    first  what its template puts there
    """

    first = ()

    def tokens_of(self, body):
        """The token ids of a chat; none of the probe's texts."""
        messages = body.get("messages")
        if isinstance(messages, list) and messages:
            return [*self.first, *(int(word) for word in
                                   messages[0]["content"].split()
                                   if word.isdigit())]
        return None


def chat(tokens=None):
    """The body of a chat that nobody has seen."""
    return json.dumps({"model": "m", "messages": [
        {"role": "user", "content": " ".join(map(str, tokens or prompt()))}]})


def ask(workers, n=1, body=None):
    """So many chats; what was decided of the last one."""
    decided = None
    connection = http.client.HTTPConnection("127.0.0.1", at.port,
                                            timeout=PATIENCE)
    for _ in range(n):
        connection.request("POST", CHAT, body or chat(), {
            "x-worker": workers})
        response = connection.getresponse()
        response.read()
        assert response.status == 200, response.status
        decided = decision(response.getheader("x-decided"))
        assert decided["worker"] in workers.split(","), decided
    connection.close()
    return decided


def state(worker):
    """The trust in the model's ids."""
    return cell(worker, LOCAL)["trust"]


# ---------------------------------------------------------------------- tests

def the_rung_below_decides_at_first():
    """in shadow the rung below makes the ids, and both are looked for"""
    assert ask("same")["rung"] == "remote"
    assert engines["same"].asked == 1, engines["same"].asked
    waits("same", full=1, route=REMOTE)
    assert waits("same", full=1, route=LOCAL)["trust"] == "shadow"
    assert echoes("shadows") == 1


def twenty_echoes_prove():
    """20 full echoes prove the model's ids, and no engine is asked any more"""
    ask("same", 18)
    assert waits("same", full=19, route=LOCAL)["trust"] == "shadow"
    assert ask("same")["rung"] == "remote"
    assert waits("same", full=20, route=LOCAL)["trust"] == "proven"
    asked = engines["same"].asked
    assert ask("same", 3)["rung"] == "local"
    assert engines["same"].asked == asked
    waits("same", full=23, route=LOCAL)
    assert echoes("shadows") == 20


def overlaps_are_found_by_them():
    """the next turn finds the blocks of the first one by the model's ids"""
    tokens = prompt()
    ask("same", 1, chat(tokens))
    waits("same", full=24, route=LOCAL)
    decided = ask("same", 1, chat(tokens + prompt()))
    assert (decided["rung"], decided["overlap"]) == (
        "local", BLOCKS), decided
    waits("same", full=25, route=LOCAL)


def each_engine_proves_for_itself():
    """beside a proven engine another one needs 20 echoes of its own"""
    ask("twin", 19)
    assert waits("twin", full=19, route=LOCAL)["trust"] == "shadow"
    assert ask("twin")["rung"] == "remote"
    assert waits("twin", full=20, route=LOCAL)["trust"] == "proven"
    assert ask("twin")["rung"] == "local"
    waits("twin", full=21, route=LOCAL)


def another_template_is_never_proven():
    """an engine with another template is never proven, and is asked"""
    ask("other", 11)
    echo = waits("other", parted=11, route=LOCAL)
    assert (echo["trust"], echo["parted_after"]) == ("mismatch", 0), echo
    assert waits("other", full=11, route=REMOTE)["parted"] == 0
    assert ask("other", 64)["rung"] == "remote"
    waits("other", full=75, route=REMOTE)
    assert state("other") == "mismatch"
    lines = told("other")
    assert len(lines) == 1 and f'route "{LOCAL}" have parted' in lines[0], \
        lines


def in_mismatch_few_are_computed():
    """of a route in mismatch one request of eight is computed for the echo"""
    asked = 64
    while cell("other", LOCAL)["parted"] == 11 and asked < 1000:
        ask("other", 16)
        asked += 16
    done = cell("other", LOCAL)["parted"] - 11
    assert 0 < done < asked / 2, (done, asked)
    assert cell("other", LOCAL)["full"] == 0


def more_must_be_proven_than_in_mismatch():
    """the model's ids are used if more candidates are proven than mismatched"""
    assert ask("same,other")["rung"] == "remote"
    assert ask("same,twin,other")["rung"] == "local"
    assert ask("same,fresh")["rung"] == "local"
    assert ask("other,fresh")["rung"] == "remote"
    assert ask("fresh")["rung"] == "remote"


def without_a_rung_below():
    """where no engine can be asked, the chat goes by load until then"""
    engine = engines["bare"]
    assert engine.asked is None
    for _ in range(20):
        assert ask("bare")["rung"] == "load"
    reasons = at.status()["requests"]["by_reason"]
    assert reasons["unproven"] == 20, reasons
    assert waits("bare", full=20, route=LOCAL)["trust"] == "proven"
    assert cell("bare", REMOTE)["full"] == 0
    assert ask("bare")["rung"] == "local"


def a_reload_keeps_it():
    """a reload keeps the trust"""
    before = at.children()
    at.reload()
    wait_until("the old processes are gone",
               lambda: not before & at.children(), PATIENCE)
    at.wait_subscribed()
    at.wait_confidence("same", "EXACT")
    assert ask("same")["rung"] == "local"
    assert (state("same"), state("other")) == ("proven", "mismatch")


def a_restarted_engine_begins_anew():
    """an engine that was restarted is in shadow, until it is proven again"""
    engine = engines["bare"]
    full = cell("bare", LOCAL)["full"]
    engine.restart()
    engine.store(prompt())
    at.wait_applied(engine.stream.cursor())
    at.wait_confidence("bare", "EXACT")
    assert state("bare") == "shadow"
    assert ask("bare")["rung"] == "load"
    wait_until("its echo", lambda: cell("bare", LOCAL)["full"] > full,
               PATIENCE)
    assert state("bare") == "shadow"
    assert ask("bare,same")["rung"] == "local"


def a_template_that_changes_is_noticed():
    """an engine that gets another template loses the trust, once"""
    engine = engines["same"]
    engine.first = (5,)
    ask("same", 25)
    wait_until("it is in mismatch", lambda: state("same") == "mismatch",
               PATIENCE)
    assert ask("same")["rung"] == "remote"
    assert cell("same", LOCAL)["mismatches"] == 1
    assert len(told("same")) == 1, told("same")
    engine.first = ()


def the_log_is_clean():
    """nothing else was said"""
    at.check_log(r"stored other blocks")


def main():
    """Runs the tests on one stage."""
    global at
    with TrustStage("trust") as at:
        test_echo.at = at
        at.start_redis()
        for worker in ("same", "twin", "other", "fresh"):
            engines[worker] = ChatEngine(worker)
            engines[worker].asked = 0
        engines["bare"] = ChatEngine("bare", version="0.31.0")
        engines["other"].first = (3, 1, 4)
        at.start_nginx({worker: engine.address
                        for worker, engine in engines.items()})
        at.wait_subscribed()
        for worker, engine in engines.items():
            engine.store(prompt())
            at.wait_confidence(worker, "EXACT")
            wait_until(f"{worker} is probed",
                       lambda worker=worker: at.workers()[worker]["probe"],
                       PATIENCE)
        status = at.run([
            the_rung_below_decides_at_first, twenty_echoes_prove,
            overlaps_are_found_by_them, each_engine_proves_for_itself,
            another_template_is_never_proven, in_mismatch_few_are_computed,
            more_must_be_proven_than_in_mismatch, without_a_rung_below,
            a_reload_keeps_it, a_restarted_engine_begins_anew,
            a_template_that_changes_is_noticed, the_log_is_clean])
        for engine in engines.values():
            engine.close()
        return status


if __name__ == "__main__":
    sys.exit(main())
