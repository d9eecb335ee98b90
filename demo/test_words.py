#!/usr/bin/python3
"""The demo's model: words that are one token each, a template that the router
takes, and one that it refuses; TAP."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import tap
import words
from fleet import REPOSITORY
from replay import word_of, words_of
from template import Template
from tokenizer import WORDS

LETTERS = 26 ** 3               # ids whose words differ

folder = None                   # set by main()
model = None


def check(name):
    """What kv-model-check says of a folder, and its status."""
    done = subprocess.run(
        [REPOSITORY / "util" / "kv-model-check", "--engine", "vllm",
         folder / name], capture_output=True, text=True, check=False,
        timeout=600, env={**os.environ, "KVR_BUILD": os.environ.get(
            "KVR_BUILD") or str(REPOSITORY / "build")})
    return done.stdout + done.stderr, done.returncode


def a_word_of_the_replay_is_a_token():
    """each word that the replay sends is one token, another one for each"""
    ids = [model.text_ids(word_of(token), False) for token in range(LETTERS)]
    assert {len(each) for each in ids} == {1}
    assert len({each[0] for each in ids}) == LETTERS


def a_word_of_an_answer_is_a_token():
    """each word that an engine answers is one token, alone and in a text"""
    ids = [model.token_of(word) for word in WORDS]
    assert len(set(ids)) == len(WORDS)
    assert model.text_ids("".join(WORDS), False) == ids


def a_prompt_keeps_its_length():
    """a chat in words has a token for each id, and those of its template"""
    lengths = {len(model.chat_ids(
        [{"role": "user", "content": words_of(range(count))}], None,
        {"add_generation_prompt": True})) - count
        for count in (1, 100, 5000)}
    assert len(lengths) == 1 and lengths.pop() < 50, lengths


def the_router_takes_the_model():
    """kv-model-check takes the model"""
    said, status = check("model")
    assert status == 0, said


def the_router_refuses_the_other_template():
    """kv-model-check refuses the other template, and says why"""
    said, status = check("unknown")
    assert status == 1 and "the tag include" in said, said


def main():
    """The test program."""
    global folder, model
    with tempfile.TemporaryDirectory(prefix="kvr-words.") as directory:
        folder = Path(directory)
        words.write(folder / "model")
        words.write(folder / "unknown", words.UNKNOWN)
        model = Template(folder / "model")
        return tap.run((a_word_of_the_replay_is_a_token,
                        a_word_of_an_answer_is_a_token,
                        a_prompt_keeps_its_length,
                        the_router_takes_the_model,
                        the_router_refuses_the_other_template))


if __name__ == "__main__":
    sys.exit(main())
