#!/usr/bin/python3
"""kv-router-check tries policies in a process of its own; TAP."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "demo"))

import tap                                                  # noqa: E402
from processes import wait_until                            # noqa: E402

CHECK = ROOT / "util" / "kv-router-check"
SHIPPED = sorted(file.stem for file in
                 (ROOT / "lua/resty/kv_router/policy").glob("*.lua"))
CONTEXTS = 22                               # those with a title
ALL = 303
HANGS = 300                                 # seconds: no test takes so long

POLICY = """
local _M = {}
function _M.new() return _M end
function _M:pick(ctx)
    %s
end
return _M
"""
MANUAL = (ROOT / "docs/writing-policies.md").read_text()

at = None                                   # a folder, set by main()


def write(name, pick, whole=False):
    """A policy acme.NAME."""
    (at / "acme").mkdir(exist_ok=True)
    (at / "acme" / f"{name}.lua").write_text(pick if whole else POLICY % pick)


def start(*args, **env):
    """Runs kv-router-check; acme is beside what it finds by itself."""
    return subprocess.Popen(
        [CHECK, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, cwd="/", env={"PATH": os.environ["PATH"],
                                 "LUA_PATH": f"{at}/?.lua", **env})


def end(process):
    """Its exit status, and what it said on both outputs."""
    out, err = process.communicate(timeout=HANGS)
    return process.returncode, out, err


def check(*args, **env):
    """Both."""
    return end(start(*args, **env))


def tried(name, pick, whole=False):
    """What is said of a policy with that pick()."""
    write(name, pick, whole)
    return check(f"acme.{name}")


def picks(out):
    """The lines of contexts: what was chosen in each."""
    return re.findall(r"^ +(?:\d+ .*: )?(.*), [\d.]+ ms(?:, SLOW)?$", out,
                      re.M)


# -------------------------------------------------------------------- tests

def shipped_policies_are_fine():
    """all shipped policies are asked in 303 contexts, and have no fault"""
    assert "kv_cost" in SHIPPED and len(SHIPPED) == 13, SHIPPED
    for name in SHIPPED:
        status, out, err = check(name)
        assert status == 0, (name, out, err)
        assert len(picks(out)) == CONTEXTS, (name, out)
        assert f"{ALL} contexts, kinds of faults: 0" in out, out
        # a machine under load may make any pick slow
        assert all("pick() took" in line for line in err.splitlines()), err


def samples_are_fine():
    """so have the sample policy and that of the manual"""
    eager = re.search(r"^```lua\n(-- acme/eager\.lua.*?)^```$", MANUAL,
                      re.M | re.S)[1]
    status, out, err = tried("eager", eager, whole=True)
    assert status == 0 and len(picks(out)) == CONTEXTS, (out, err)
    assert '"w1" rank 0: eager' in out, out
    status, out, err = check("--lua-path", f"{ROOT}/conf/?.lua",
                             "policy.tiers")
    assert status == 0 and len(picks(out)) == CONTEXTS, (out, err)


def settings_are_taken():
    """CONF is a Lua table, as in nginx.conf"""
    status, out, err = check("kv_cost", "{ decay = 0.5, temperature = 1 }")
    assert status == 0, (out, err)
    status, out, err = check("session", '{ next = "round_robin", '
                                        'dict = "sessions" }')
    assert status == 0, (out, err)
    (at / "conf.json").write_text('{"decay": 0.5, "temperature": 1}')
    status, out, err = check("kv_cost", str(at / "conf.json"))
    assert status == 0, (out, err)
    (at / "conf.json").write_text('{"decay": ')
    status, out, err = check("kv_cost", str(at / "conf.json"))
    assert status == 2 and "conf.json is no JSON object" in err, (out, err)
    status, out, err = check("kv_cost", "{ decoy = 0.5 }")
    assert status == 1, (out, err)
    assert 'policy "kv_cost": unknown setting "decoy"' in err, err


def it_sees_what_policies_see():
    """a policy reads candidates, the request, the prompt, hashes, matches"""
    status, out, err = tried("reads", """
        local r, seen = ctx.request, {}
        for _, _, device in ctx.matches:each() do
            seen[#seen + 1] = device
        end
        for i = 1, ctx.prompt_blocks do
            assert(not ctx.hashes or ctx.hashes[i - 1] ~= 0)
        end
        assert(ctx.candidates[#ctx.candidates + 1] == nil)
        assert(ngx.crc32_long("123456789") == 0xcbf43926)
        assert(ngx.var.request_method == "POST" and ctx.wanted >= 1)
        ngx.shared.counts:set("picks", (ngx.shared.counts:get("picks") or 0)
                                       + 1)
        return 1, nil, table.concat({
            #ctx.candidates, ctx.prompt_tokens, ctx.candidates[1].confidence,
            tostring(r.headers["x-session-id"]), tostring(r.session),
            tostring(r.priority), tostring(r.model), #seen,
            ngx.shared.counts:get("picks") }, " ")""")
    assert status == 0, (out, err)
    said = re.findall(r'rank 0: (\d+) (\d+) (\w+) (\S+) (\S+) (\d+) (\w+) '
                      r'(\d+) (\d+),', out)
    assert len(said) == CONTEXTS, out
    assert [row[8] for row in said] == [str(n + 1) for n in range(CONTEXTS)], said
    assert {row[0] for row in said} >= {"1", "2", "128", "1024"}, said
    assert {row[1] for row in said} >= {"0", "7", "1000", "131072"}, said
    assert {row[3] for row in said} == {"nil", "s1"}, said
    assert {row[5] for row in said} == {"0", "5"}, said


def an_error_is_told():
    """an error is told with its line and a traceback, once, and status 1"""
    status, out, err = tried("errs", "return nil + 1")
    assert status == 1, (out, err)
    assert re.search(r'policy "acme\.errs": pick: [^\n]*acme/errs\.lua:5: '
                     r'attempt to perform arithmetic', err), err
    assert err.count("stack traceback") == 1, err
    assert out.count("FAULT: the least loaded worker is taken") == CONTEXTS
    assert "kinds of faults: 1," in out, out


def an_error_in_one_context_is_told():
    """so is one that comes in one context alone, and in which"""
    status, out, err = tried("rare", """
        for i = 1, #ctx.candidates do
            if ctx.candidates[i].health == "ok" then return i end
        end""")
    assert status == 1 and "pick: it returned nothing: pick() must" in err, (out, err)
    assert out.count("FAULT") == 1, out
    assert " 11 all workers have failed: \n   FAULT" in out, out


def missing_hashes_are_told():
    """one that takes every prompt to have hashes is told of texts without"""
    status, out, err = tried("hashed", """
        if ctx.prompt_blocks > 0 then
            return tonumber(ctx.hashes[0] % #ctx.candidates) + 1
        end
        return 1""")
    assert status == 1 and "attempt to index field 'hashes'" in err, (out, err)
    assert out.count("FAULT") == 1, out
    assert "a text at workers without events: \n   FAULT" in out, out


def a_wrong_answer_is_told():
    """so are an answer that is no candidate, and none"""
    status, out, err = tried("wrong", "return 'w9999', 0, 'mine'")
    assert status == 1, (out, err)
    assert ('policy "acme.wrong": pick: it returned worker "w9999" rank 0, '
            "which is no candidate") in err, err
    status, out, err = tried("silent", "return nil")
    assert status == 1 and "pick: it returned nothing: pick() must" in err, err


def a_wait_is_told():
    """so is a policy that yields, by itself or in a coroutine of its own"""
    for name, pick in {
            "sleeps": "ngx.sleep(1) return 1",
            "yields": "coroutine.yield() return 1",
            }.items():
        status, out, err = tried(name, pick)
        assert status == 1, (out, err)
        assert (f'policy "acme.{name}": pick: it yielded, which a policy may '
                "not") in err, err
        assert f"acme/{name}.lua:5:" in err, err
    status, out, err = tried(
        "hides", "coroutine.wrap(function() ngx.sleep(1) end)() return 1")
    assert status == 1, (out, err)
    assert "would yield, which a policy may not" in err, err


def done_and_explain_are_called():
    """errors of done() and explain() are told, too"""
    status, out, err = tried("sad", """
        return 1
    end
    function _M:done(ctx, outcome)
        error("done with " .. outcome.worker)
    end
    function _M:explain(ctx)
        error("dry: " .. tostring(ctx.dry))""")
    assert status == 1, (out, err)
    assert re.search(r'"acme\.sad": done: .*: done with w1', err), err
    assert re.search(r'"acme\.sad": explain: .*: dry: true', err), err
    assert "kinds of faults: 2," in out, out


def a_policy_that_is_refused_is_told():
    """a syntax error, an unknown policy, an error in new(), one without
    pick(): each is told as nginx tells it"""
    for name, text, said in (
            ("typo", "return 1 +", r"acme/typo\.lua:2: unexpected symbol"),
            ("fails", "return { new = function() error('no way') end }",
             r"acme/fails\.lua:2: no way"),
            ("strict", "return { new = function() return nil, 'x' end }",
             r'policy "acme\.strict": x'),
            ("void", "return { new = function() end }",
             r'policy "acme\.void": new\(conf\) returned nothing: it must'),
            ("empty", "return { new = function() return {} end }",
             r"has no function pick\(self, ctx\)")):
        status, out, err = tried(name, "\n" + text, whole=True)
        assert status == 1, (name, out, err)
        assert re.search(said, err), (name, err)
        assert not picks(out), out
    status, out, err = check("acme.nowhere")
    assert status == 1, (out, err)
    assert 'unknown policy "acme.nowhere"' in err and str(at) in err, err


def policies_that_never_end_are_ended():
    """a policy that never ends, or is caught by nothing, is ended, and file and
    line of the loop are told; one that waits in C is ended with all that it
    started"""
    write("endless", "while true do end")
    write("caught", "while true do pcall(error) end")
    write("blocks", f"""os.execute('echo $$ > "{at}/pid"; exec sleep 86400')""")
    write("loading", "while true do end", whole=True)
    write("late", "if #ctx.candidates > 1000 then repeat until false end "
                  "return 1")
    write("empty", "while #ctx.candidates == 0 do end return 1")
    running = {name: start(f"acme.{name}") for name in (
        "endless", "caught", "blocks", "loading", "late", "empty")}
    ended = {name: end(process) for name, process in running.items()}
    for name, (status, out, err) in ended.items():
        first = "context 1 one worker, a prompt without tokens"
        assert status == 1, (name, status, out, err)
        if name == "blocks":
            assert err.endswith("kv-router-check: it did not end within 60 s: "
                                "an endless loop, or a wait?\n"), err
            assert out.endswith("\n 1 one worker, a prompt without tokens: \n")
            continue
        where = {"loading": "load", "late": "context 20 1024 workers",
                 "empty": "no workers"}.get(name, first)
        line = 1 if name == "loading" else 5
        assert (f'kv-router-check: policy "acme.{name}", {where}: it has run '
                "for more than 2 s: an endless loop?\nstack traceback:\n") \
            in err, (name, err)
        assert re.search(rf"acme/{name}\.lua:{line}: in ", err), (name, err)
    stat = Path("/proc") / (at / "pid").read_text().strip() / "stat"
    wait_until("what the policy started has ended", lambda: (
        not stat.exists() or stat.read_text().rpartition(")")[2][1] == "Z"))


def a_global_is_told():
    """so is a variable that is global, with file and line, once"""
    status, out, err = tried("shares", "seen = (seen or 0) + 1 return 1")
    assert status == 1 and "kinds of faults: 1," in out, (out, err)
    assert re.search(r'acme/shares\.lua:5: the variable "seen" is global', err)
    assert err.count("is global") == 1, err


def unknown_fields_are_told():
    """so is a field that candidates do not have, with those that they have"""
    status, out, err = tried("guesses", "return ctx.candidates[1].overlap "
                                        "and 1 or 1")
    assert status == 1, (out, err)
    assert re.search(r'acme/guesses\.lua:5: a candidate has no field "overlap": '
                     "it has worker, rank, device, host, disk, ", err), err


def unknown_fields_of_ctx_are_told():
    """and one that ctx does not have"""
    status, out, err = tried("tells", "return ctx.tokens and 1 or 1")
    assert status == 1, (out, err)
    assert re.search(r'acme/tells\.lua:5: ctx has no field "tokens": it has '
                     "best, block_size, candidates, dry, ", err), err


def a_policy_without_bounds_is_ended():
    """one that takes too much memory has an error, and one that ends the process
    a fault, whatever status it gives"""
    status, out, err = tried("grows", 'return ("x"):rep(2^30)')
    assert status == 1 and "not enough memory" in err, (out, err)
    status, out, err = tried("piles", """
        local pile = {}
        for i = 1, math.huge do pile[i] = { i } end""")
    assert status == 1 and "it has more than 512 MiB of memory: a table" in err
    assert re.search(r"acme/piles\.lua:7: in ", err), err
    for status in (0, 3):
        code, out, err = tried("exits", f"os.exit({status})")
        assert code == 1, (code, out, err)
        assert "it has called os.exit(), which ends the nginx process" in err
        assert re.search(r"acme/exits\.lua:5: in ", err), err
        code, out, err = tried(
            "leaves", f"""local ffi = require "ffi"
                ffi.cdef "void _exit(int status);"
                ffi.C._exit({status})""")
        assert code == 1, (code, out, err)
        assert f"it ended the process, with status {status}" in err, err


def an_error_without_words_is_told():
    """an error that is no text has a sentence, and file and line"""
    for value in ("nil", "{ code = 5 }"):
        status, out, err = tried("mute", f"error({value})")
        kind = "nil" if value == "nil" else "table"
        assert status == 1, (out, err)
        assert (f'pick: error() was called with a {kind}: call it with a '
                "sentence\n") in err, err
        assert re.search(r"acme/mute\.lua:5: in ", err), err


def a_slow_policy_is_no_fault():
    """a pick of over 10 ms is marked and told, with the time"""
    status, out, err = tried("slow", """
        local now_us = require("resty.kv_router.ffi").now_us
        local till = now_us() + (#ctx.candidates == 1024 and 11000 or 0)
        while now_us() < till do end
        return 1""")
    assert status == 0, (out, err)
    assert re.search(r'policy "acme\.slow": pick\(\) took \d+\.\d ms for \d+ '
                     "candidates; requests of this nginx process wait", err)
    assert re.search(r"^   \"w1\" rank 0, \d+\.\d\d ms, SLOW$", out, re.M), out
    assert "picks over 10 ms: 0," not in out, out


def what_is_missing_is_named():
    """what only nginx has is named when it is called, not before"""
    status, out, err = tried("needs", """
        local socket, seen = ngx.socket, ngx.re.match
        return #ctx.candidates > 200 and seen("a", "b") or 1""")
    assert status == 1, (out, err)
    assert ("acme/needs.lua:7: there is no ngx.re.match() without nginx: try "
            "this policy in nginx") in err, err
    assert picks(out)[:19] == ['"w1" rank 0'] * 19, out


def it_says_how_it_is_called():
    """wrong calls end with status 2 and say why; --help tells it all"""
    for args, said in (((), "no MODULE is given"),
                       (("a", "{}", "b"), "3 arguments are given"),
                       (("--verbose", "a"), 'unknown option "--verbose"'),
                       (("--lua-path",), "--lua-path needs a value"),
                       (("-c", "nginx.conf"), 'the option "-c" was removed: '
                        "give the name of each policy"),
                       (("kv_cost", "{ decay = "), "CONF is no Lua table"),
                       (("kv_cost", "{ decay = x.y }"), "CONF is no Lua table"),
                       (("kv_cost", "5"), "CONF is no Lua table: it is a num")):
        status, out, err = check(*args)
        assert status == 2 and said in err, (args, status, out, err)
    for name in ("cat", "dirname", "timeout"):
        (at / name).symlink_to(shutil.which(name))
    status, out, err = check("kv_cost", PATH=str(at))
    assert status == 2 and 'there is no program "luajit"' in err, (out, err)
    status, out, err = check("--help")
    assert status == 0 and not err, err
    for word in ("Usage: kv-router-check", "--lua-path PATH", "Exit status",
                 "CONF", "luajit"):
        assert word in out, (word, out)


def main():
    """Runs all of it."""
    global at
    with tempfile.TemporaryDirectory(prefix="kv-router check-") as path:
        at = Path(path)
        return tap.run([
            shipped_policies_are_fine, samples_are_fine, settings_are_taken,
            it_sees_what_policies_see, an_error_is_told,
            an_error_in_one_context_is_told, missing_hashes_are_told,
            a_wrong_answer_is_told,
            a_wait_is_told, done_and_explain_are_called,
            a_policy_that_is_refused_is_told,
            policies_that_never_end_are_ended, a_global_is_told,
            unknown_fields_are_told, unknown_fields_of_ctx_are_told,
            a_policy_without_bounds_is_ended,
            an_error_without_words_is_told, a_slow_policy_is_no_fault,
            what_is_missing_is_named, it_says_how_it_is_called])


if __name__ == "__main__":
    sys.exit(main())
