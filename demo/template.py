"""A tokenizer and a chat template from files, as engines have them: byte-level
BPE (tokenizer.json) and Jinja (chat_template.jinja).

It is for the tests' own model: of tokenizer.json it reads the vocabulary, the
merges, one regular expression for pieces, special tokens, and the BOS.
"""

import json
import re
from functools import lru_cache
from pathlib import Path

import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tokenizer import token_of


def byte_names():
    """The character that stands for each byte, as in GPT-2's vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return ({byte: chr(byte) for byte in plain}
            | {byte: chr(256 + i) for i, byte in enumerate(others)})


class Template:
    """The tokenizer and the template of one folder."""

    added = 1                   # tokens that it puts before a text: the BOS

    def __init__(self, folder):
        folder = Path(folder)
        data = json.loads((folder / "tokenizer.json").read_text("utf-8"))
        self._ids = data["model"]["vocab"]
        self._ranks = {tuple(pair if isinstance(pair, list)
                             else pair.split(" ")): rank
                       for rank, pair in enumerate(data["model"]["merges"])}
        self._special = {token["content"]: token["id"]
                         for token in data["added_tokens"]}
        self._split = re.compile("(" + "|".join(
            map(re.escape, self._special)) + ")")
        self._pieces = re.compile(
            data["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"])
        self._names = byte_names()
        config = json.loads((folder / "tokenizer_config.json").read_text(
            "utf-8"))
        self._bos = config["bos_token"]
        self._piece = lru_cache(maxsize=65536)(self._merged)
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True,
            extensions=[jinja2.ext.loopcontrols])
        environment.filters["tojson"] = lambda value: json.dumps(
            value, ensure_ascii=False)
        self._template = environment.from_string(
            (folder / "chat_template.jinja").read_text("utf-8"))

    def text_ids(self, text, special=True):
        """The ids of a text; with the BOS before it, if `special`."""
        ids = [self._special[self._bos]] if special else []
        for part in self._split.split(text):
            if part in self._special:
                ids.append(self._special[part])
                continue
            for piece in self._pieces.findall(part):
                ids += self._piece(piece)
        return ids

    def token_of(self, word):
        """The id of a word; that of the toy tokenizer when the word is not
        one token."""
        ids = self._piece(word)
        return ids[0] if len(ids) == 1 else token_of(word)

    def chat_ids(self, messages, tools, arguments, special=False):
        """The ids of a conversation; `arguments` are the template's.  One
        that is to be continued ends where its last message does."""
        text = self._template.render(
            messages=messages, tools=tools, bos_token=self._bos, **arguments)
        if arguments.get("continue_final_message"):
            last = messages[-1]["content"].strip()
            text = text[:text.rindex(last) + len(last)]
        return self.text_ids(text, special)

    def _merged(self, piece):
        """The ids of a piece: the pair with the lowest rank is merged until
        none is left."""
        parts = [self._names[byte] for byte in piece.encode()]
        while len(parts) > 1:
            rank, at = min((self._ranks.get(pair, len(self._ranks)), i)
                           for i, pair in enumerate(zip(parts, parts[1:])))
            if rank == len(self._ranks):
                break
            parts[at:at + 2] = ["".join(parts[at:at + 2])]
        return [self._ids[part] for part in parts]
