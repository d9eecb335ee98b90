"""A toy tokenizer: deterministic, stateless, the same in every engine.

A token is a word with the space before it, a punctuation mark, a white-space
character or a special token such as <|im_end|>; its id is a hash of its text.
Text made of WORDS (what engines answer) gives back the very ids it was made
of, so that the next turn of a chat finds the previous answer in the cache.
"""

import re
from functools import lru_cache

from xxhash import xxh32_intdigest

VOCABULARY = 1 << 17
PIECE = re.compile(r"<\|[a-z_]+\|>| ?\w+|\s|[^\w\s]")

WORDS = [" " + word for word in """
    a about after all also an and any are as at be because but by can could
    day do even find first for from get give go good have he her him his how
    if in into it its just know like look make many me more my new no not now
    of on one only or other our out over people say see she so some take tell
    than that the their them then there these they thing think this time to
    two up us use very want way we well what when which who will with work
    would year you your""".split()]


class ModelError(Exception):
    """A model's directory that can't be used: why."""


@lru_cache(maxsize=65536)
def token_of(piece):
    """The id of one piece of text."""
    return xxh32_intdigest(piece.encode()) % VOCABULARY


def tokenize(text):
    """The token ids of a text."""
    return [token_of(piece) for piece in PIECE.findall(text)]


class Toy:
    """The toy tokenizer, and its template: neither tools nor arguments."""

    added = 0                   # tokens that it puts before a text

    token_of = staticmethod(token_of)

    @staticmethod
    def text_ids(text, _special=True):
        """The ids of a text."""
        return tokenize(text)

    @staticmethod
    def chat_ids(messages, _tools, _arguments, _special=False):
        """The ids of a conversation."""
        return tokenize(chat_text(messages))


def chat_text(messages):
    """A conversation as one prompt (ChatML), ready for the next answer.

    Raises ValueError when a message isn't one.
    """
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages: a non-empty list is expected")
    parts = []
    for message in messages:
        if not isinstance(message, dict) \
                or not isinstance(message.get("role"), str):
            raise ValueError("messages: each must be an object with a role")
        parts.append(f"<|im_start|>{message['role']}\n"
                     f"{_content_text(message.get('content'))}<|im_end|>\n")
    return "".join(parts) + "<|im_start|>assistant\n"


def _content_text(content):
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
            isinstance(part, dict) and part.get("type") == "text"
            and isinstance(part.get("text"), str) for part in content):
        return "".join(part["text"] for part in content)
    raise ValueError("messages: content must be text or a list of text parts")
