#!/usr/bin/python3
"""A policy's file is edited while requests are routed by it; TAP."""

import json
import os
import random
import signal
import sys

from stage import PATIENCE, PROCESSES, SEED, Stage, wait_until
from traffic import Cache, Engines, Fleet, Load, Loop, make_prompts

POLICY = """
local _M = {}
function _M.new() return _M end
function _M:pick(ctx) %s end
return _M
"""
BROKEN = {
    "a syntax error": (POLICY % "return 1 +", "unexpected symbol"),
    "an error when it is loaded": ("error('not today')", "not today"),
    "no pick()": ("return { new = function() return {} end }",
                  "has no function pick(self, ctx)"),
    "settings that it refuses": (
        "return { new = function() return nil, 'too few' end }", "too few"),
}
TELLS = """
    for i = 1, #ctx.candidates do
        local c = ctx.candidates[i]
        if c.worker == 'w1' then
            return i, nil, c.confidence .. ' ' .. c.confidence_reason
        end
    end"""


class Play:
    """What all tests look at."""

    def __init__(self, stage, loop):
        self.stage, self.loop = stage, loop
        self.engines = Engines(loop, ("w1", "w2", "w3"))
        self.load = Load(loop, stage, make_prompts(
            random.Random(SEED), 4, 2, 20), random.Random(SEED))
        (stage.directory / "acme").mkdir()
        self.write("return 'w1', 0, 'first'")
        stage.start_redis()
        stage.start_nginx(self.engines.addresses, policy="acme.choose")

    def write(self, pick, whole=False):
        """Another file for the policy, in one step."""
        file = self.stage.directory / "acme" / "choose.lua"
        new = file.with_suffix(".new")
        new.write_text(pick if whole else POLICY % pick)
        os.replace(new, file)

    def chosen(self, count=20):
        """The workers that requests go to now."""
        return {json.loads(self.stage.call("POST", "/v1/completions", {
            "prompt": [1] * 40}))["worker"] for _ in range(count)}

    def routed(self):
        """Who would be chosen, and why."""
        answer = json.loads(self.stage.call("POST", "/kv/route", {
            "prompt": [1] * 40}))
        return answer["chosen"]["worker_id"], answer["reason"]

    def policy(self):
        """What the status tells of the policy."""
        return json.loads(self.stage.call("GET", "/kv/stats"))["policy"]


at = None                       # the Play, set by main()


def the_first_policy_routes():
    """the policy in the file routes"""
    at.load.start(40)
    assert at.chosen() == {"w1"}
    assert at.routed() == ("w1", "first"), at.routed()


def an_edit_alone_changes_nothing():
    """an edited file is read by a reload, not before"""
    at.write("return 'w2', 0, 'second'")
    assert at.chosen() == {"w1"}


def a_reload_brings_the_edit():
    """with the reload the new policy routes"""
    at.stage.reload()
    wait_until("only w2 is chosen", lambda: at.chosen(5) == {"w2"}, PATIENCE)
    assert at.routed() == ("w2", "second"), at.routed()


def edits_under_load_take_effect():
    """so it is each time, while requests and streams are under way"""
    for number in range(4):
        worker = f"w{number % 3 + 1}"
        wait_until("streams are open", lambda: at.load.open > 2, PATIENCE)
        at.write(f"return '{worker}', 0, 'edit {number}'")
        at.stage.reload()
        wait_until("it is chosen", lambda: at.chosen(5) == {worker}, PATIENCE)
        assert at.routed() == (worker, f"edit {number}"), at.routed()


def a_broken_edit_is_refused():
    """a file that can't be loaded refuses the reload, the log says why"""
    at.write("return 'w3', 0, 'good'")
    at.stage.reload()
    wait_until("only w3 is chosen", lambda: at.chosen(5) == {"w3"}, PATIENCE)
    for what, (text, why) in BROKEN.items():
        settled()
        before, known = at.stage.children(), len(at.stage.log())
        at.write(text, whole=True)
        at.stage.nginx.signal(signal.SIGHUP)
        wait_until(f"the log tells of {what}", lambda: all(
            text in at.stage.log()[known:]
            for text in ("init_by_lua error", why)), PATIENCE)
        assert at.stage.children() == before, what
        assert at.chosen() == {"w3"}, what
        assert at.routed() == ("w3", "good"), what
        told = at.policy()
        assert told["refused_at"] >= told["loaded"] > 0, told
        assert why in told["refused"], (why, told)


def a_mended_file_is_taken():
    """when it is mended, the next reload takes it"""
    at.write("return 'w1', 0, 'mended'")
    at.stage.reload()
    wait_until("only w1 is chosen", lambda: at.chosen(5) == {"w1"}, PATIENCE)
    told = at.policy()
    assert (told["refused"], told["refused_at"]) == ("", 0), told


def an_edit_that_fails_costs_no_request():
    """a policy that fails at each pick is counted, and all are answered"""
    before = errors()
    at.write("error('at each pick')")
    at.stage.reload()
    wait_until("picks fail", lambda: errors() > before, PATIENCE)
    assert at.chosen(5) <= {"w1", "w2", "w3"}
    assert "at each pick" in at.stage.log()
    assert at.routed()[1] == "policy_error", at.routed()


def no_request_failed():
    """no request of the load failed"""
    at.load.stop(done=100, streamed=5)
    print(f"# {at.load.done} requests, {at.load.streamed} of them streams")
    assert not at.load.failures, at.load.failures[:5]
    at.stage.check_idle()
    settled()


def policies_see_why_a_view_is_not_trusted():
    """a policy sees the confidence of a worker's view, and why it is so"""
    at.write(TELLS)
    at.stage.reload()
    wait_for("UNKNOWN no_events")
    fleet = Fleet(at.loop, at.stage.redis_url(), [Cache(
        "w1", random.Random(SEED), make_prompts(random.Random(SEED), 2, 2,
                                                20))])
    fleet.publish("w1", 3)
    fleet.drain()
    at.stage.wait_applied(fleet.cursors())
    wait_for("EXACT none")
    at.stage.stop_redis()
    wait_for("DEGRADED redis_down")
    answer = json.loads(at.stage.call("POST", "/kv/route", {
        "prompt": [1] * 40}))
    assert [(c["confidence"], c["reason"]) for c in answer["candidates"]
            if c["worker_id"] == "w1"] == [("DEGRADED", "redis_down")], answer


def wait_for(reason):
    """Not a test: until that is the reason of requests for w1."""
    def told():
        seen.append(at.routed())
        return seen[-1] == ("w1", reason)

    seen = []
    try:
        wait_until(reason, told, PATIENCE)
    except Exception as err:
        raise AssertionError(f"{err}: {seen[-1:]}") from err


def nothing_else_is_wrong_in_the_log():
    """the error log has no error but those of the policy"""
    at.stage.check_log(r'policy "acme.choose"', r"init_by_lua error",
                       r"redis")


def errors():
    """Not a test: requests whose policy failed."""
    return at.stage.status()["requests"]["policy_errors"]


def settled():
    """Not a test: processes of former generations have ended."""
    wait_until("only the last ones are left",
               lambda: len(at.stage.children()) == PROCESSES, PATIENCE)


def main():
    global at
    with Stage("policies") as stage, Loop() as loop:
        at = Play(stage, loop)
        return stage.run([
            the_first_policy_routes,
            an_edit_alone_changes_nothing,
            a_reload_brings_the_edit,
            edits_under_load_take_effect,
            a_broken_edit_is_refused,
            a_mended_file_is_taken,
            an_edit_that_fails_costs_no_request,
            no_request_failed,
            policies_see_why_a_view_is_not_trusted,
            nothing_else_is_wrong_in_the_log])


if __name__ == "__main__":
    sys.exit(main())
