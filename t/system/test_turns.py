#!/usr/bin/python3
"""The turn cache: chats that go on, by the model of a zone; TAP."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import test_echo
import test_trust
from stage import BLOCK_SIZE, PATIENCE, ROOT, wait_until
from template import Template
from test_echo import EchoStage, Engine, prompt, waits
from test_trust import LOCAL, ask

MODEL = Path(os.environ.get("KVR_TEST_MODEL") or ROOT / "t/vectors/model")
TURNS = 12
FORKS = 43                      # subagents of one context

at = None                       # the stage, set by main()
engine = None
template = Template(ROOT / "t/vectors/golden/model")
count = {"asked": 0}


class TurnStage(EchoStage):
    """The zone has a model, and so a turn cache."""

    tokenizer = "auto"

    def _write_conf(self, *args):
        super()._write_conf(*args)
        folder = self.directory / "model"
        shutil.copytree(MODEL, folder, dirs_exist_ok=True)
        folder.chmod(0o755)
        for file in folder.iterdir():
            file.chmod(0o644)
        path = self.directory / "nginx.conf"
        conf = path.read_text()
        for old, new in (
                ('tokenizer = "auto",', f'tokenizer = "{self.tokenizer}", '
                 f"tokenizer_timeout = {PATIENCE},"),
                ("    kv_router_redis ", f"    kv_router_model  main {folder} "
                 "engine=vllm turns=4m;\n    kv_router_redis ")):
            assert conf.count(old) == 1, conf
            conf = conf.replace(old, new)
        path.write_text(conf)


class LocalStage(TurnStage):
    """The model's ids are taken without a proof."""

    tokenizer = "local"


class ModelEngine(Engine):
    """An engine that runs the model."""

    def tokens_of(self, body):
        """The token ids of a chat."""
        messages = body.get("messages")
        return messages and ids_of(messages)


def ids_of(messages):
    """The ids that the engine makes of a chat."""
    return template.chat_ids(messages, None, {"add_generation_prompt": True})


def words(n):
    """So many words that nobody has seen."""
    return " ".join(map(str, prompt(0, n)))


def turns(system, n=TURNS):
    """The messages of a chat, turn by turn."""
    messages = [{"role": "system", "content": system}]
    for _ in range(n):
        messages.append({"role": "user", "content": words(30)})
        yield messages
        messages.append({"role": "assistant", "content": words(20)})


def send(messages):
    """A turn: by the model's ids, with all blocks of the engine's."""
    explained = ask("w1", 1, json.dumps({"model": "m", "messages": messages}))
    count["asked"] += 1
    assert explained["rung"] == "local", explained
    blocks = len(ids_of(messages)) // BLOCK_SIZE
    assert explained["blocks"] == blocks, (explained, blocks)
    return explained


def cache(name):
    """A number of the turn cache."""
    return at.status()["turn_cache"][name]


def all_echo():
    """Until all echoes are full."""
    waits("w1", full=count["asked"], route=LOCAL)


# ---------------------------------------------------------------------- tests

def nothing_is_kept_in_shadow():
    """before the model's ids are proven nothing is looked up or kept"""
    for messages in turns(words(60), 20):
        ask("w1", 1, json.dumps({"model": "m", "messages": messages}))
        count["asked"] += 1
    assert waits("w1", full=20, route=LOCAL)["trust"] == "proven"
    assert (cache("kept"), cache("misses")) == (0, 0)


def next_turns_are_found():
    """each turn of a chat finds the one before it, with the same ids"""
    for number, messages in enumerate(turns(words(400))):
        explained = send(messages)
        assert cache("hits") == number, number
        if number:
            all_echo()
            assert explained["overlap"] > 0, explained
    assert (cache("misses"), cache("lost"), cache("torn")) == (1, 0, 0)
    assert cache("tokens") > 1000
    all_echo()


def edits_are_noticed():
    """a chat whose beginning was edited is another one, its prompt is shared"""
    hits = cache("hits")
    system = words(400)
    messages = list(turns(system, 3))[-1][:-1]
    send(messages)
    messages[1]["content"] = words(30)
    send(messages)
    assert cache("hits") == hits + 1
    messages[0]["content"] = words(400)
    send(messages)
    assert cache("hits") == hits + 1
    all_echo()


def a_reload_keeps_them():
    """a reload keeps the entries, and so do processes that are killed"""
    chat = list(turns(words(200), 4))[-1]
    send(chat)
    all_echo()
    before = at.children()
    at.reload()
    wait_until("the old processes are gone",
               lambda: not before & at.children(), PATIENCE)
    at.wait_subscribed()
    at.wait_confidence("w1", "EXACT")
    hits = cache("hits")
    send(chat)
    assert cache("hits") == hits + 1
    all_echo()
    for pid in at.children():
        os.kill(pid, signal.SIGKILL)
    at.wait_lease()
    at.wait_confidence("w1", "EXACT")
    send(chat)
    assert cache("hits") == hits + 2
    all_echo()


# ------------------------------------------------------- without a proof

def found(messages):
    """A chat's token ids that the cache had, in percent."""
    before = cache("tokens")
    send(messages)
    return 100 * (cache("tokens") - before) / len(ids_of(messages))


def sent(n=TURNS):
    """A chat of n turns that was sent turn by turn, with all its answers."""
    messages = []
    for messages in turns(words(400), n):
        send(messages)
    return [dict(message) for message in messages]


def asks(messages, n=30):
    """The chat with another question."""
    return [*messages, {"role": "user", "content": words(n)}]


def local_chats_are_found_at_once():
    """with tokenizer = "local" the second turn of a chat is found"""
    chat = list(turns(words(400), 2))[-1]
    send(chat[:2])
    assert found(chat[:-1]) > 75
    assert cache("misses") == 1


def sessions_that_branch():
    """subagents, edits and dropped reasoning: what is found of each"""
    rows = [("the next turn", [found(asks(sent()))], 90)]

    context = sent()
    rows.append((f"each of {FORKS} subagents of one context",
                 [found(asks(context)) for _ in range(FORKS)], 90))

    # the middle of a chat that came turn by turn is another one
    edited = sent()
    edited[len(edited) // 2] = {**edited[len(edited) // 2],
                                "content": words(30)}
    rows.append(("a message in the middle was edited",
                 [found(asks(edited))], 60))

    # what was thought in the last turn is in the prompt of its tools' answers,
    # and not in that of the next question
    thought = asks(sent())
    send(thought)
    send([*thought, {"role": "assistant", "content": words(60)},
          {"role": "user", "content": words(10)}])
    rows.append(("reasoning of the last turn was dropped",
                 [found(asks([*thought, {"role": "assistant",
                                         "content": words(20)}]))], 85))

    whole = asks([message for turn in list(turns(words(400)))[-1:]
                  for message in turn])
    send(whole)
    whole[-3] = {"role": "user", "content": words(30)}
    rows.append(("a chat that came only once, its last turns were edited",
                 [found(whole)], 25))

    for name, shares, least in rows:
        print(f"# {name}: {min(shares):.0f} % of its tokens")
    for name, shares, least in rows:
        assert min(shares) >= least, (name, shares)


def nothing_else_is_wrong_in_the_log():
    """the log is clean"""
    at.check_log(r"signal 9")


def staged(stage, name, tests):
    """Runs the tests on a stage with one engine; the status."""
    global at, engine
    with stage(name) as at:
        test_echo.at = test_trust.at = at
        at.start_redis()
        engine = ModelEngine("w1")
        at.start_nginx({"w1": engine.address})
        at.wait_subscribed()
        engine.store(prompt())
        at.wait_confidence("w1", "EXACT")
        status = at.run(tests)
        engine.close()
        return status


def main():
    """The program; test_turns_local.py is the other one."""
    return staged(TurnStage, "turns", [
        nothing_is_kept_in_shadow, next_turns_are_found, edits_are_noticed,
        a_reload_keeps_them, nothing_else_is_wrong_in_the_log])


if __name__ == "__main__":
    sys.exit(main())
