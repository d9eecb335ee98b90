"""The golden requests as they are recorded, and what answers say: usage in
every dialect, token ids.
"""

import contextlib
import json
from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[1] / "vectors" / "golden"


def recorded(engine):
    """The header of an engine's file, and its cases."""
    with open(GOLDEN / f"{engine}.jsonl", encoding="ascii") as lines:
        header, *cases = map(json.loads, lines)
    return header["header"], cases


def objects(kind, text):
    """The JSON objects of an answer, streamed or not."""
    if kind == "text/event-stream":
        return [json.loads(line[6:]) for line in text.splitlines()
                if line.startswith("data: {")]
    try:
        value = json.loads(text)
    except ValueError:
        return []
    return value if isinstance(value, list) else [value]


def usage_of(kind, text):
    """What an answer says, in one dialect: the prompt's tokens, those of them
    that were cached, and the answer's.  Of several usages in one dialect the
    last one counts; of SGLang's own, where each choice has its own, the sum
    of all choices."""
    found, choices = None, {}
    for number, answer in enumerate(objects(kind, text)):
        if not isinstance(answer, dict):
            continue
        usage = answer.get("usage") or (answer.get("message") or {}).get(
            "usage") or (answer.get("response") or {}).get("usage")
        meta = answer.get("meta_info")
        if isinstance(usage, dict):
            found = {**(found or {}), **dialect(usage)}
        elif isinstance(meta, dict):
            streamed = kind == "text/event-stream"
            choices[answer.get("index", 0) if streamed else number] = {
                "prompt": meta["prompt_tokens"],
                "cached": meta["cached_tokens"],
                "completion": meta["completion_tokens"]}
    if choices:
        found = {name: sum(choice[name] for choice in choices.values())
                 for name in ("prompt", "cached", "completion")}
    return found


def dialect(usage):
    """One usage object; of a stream of messages the parts that it has."""
    if "prompt_tokens" in usage:
        details = usage.get("prompt_tokens_details") or {}
        return {"prompt": usage["prompt_tokens"],
                "cached": details.get("cached_tokens"),
                "completion": usage.get("completion_tokens")}
    if "input_tokens_details" in usage:
        return {"prompt": usage["input_tokens"],
                "cached": usage["input_tokens_details"].get("cached_tokens"),
                "completion": usage["output_tokens"]}
    found = {}
    if "input_tokens" in usage:
        read = usage.get("cache_read_input_tokens")
        found = {"prompt": usage["input_tokens"] + (read or 0)
                 + (usage.get("cache_creation_input_tokens") or 0),
                 "cached": read}
    if "output_tokens" in usage:
        found["completion"] = usage["output_tokens"]
    return found


def ids_of(text):
    """The token ids of an answer to a question; None when it has none."""
    with contextlib.suppress(ValueError):
        value = json.loads(text)
        if isinstance(value, list):
            lists = [part.get("token_ids") for part in value]
            return lists if all(lists) else None
        for field in ("tokens", "token_ids"):
            if isinstance(value.get(field), list):
                return value[field]
    return None
