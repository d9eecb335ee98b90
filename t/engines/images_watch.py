"""An engine that reads images: what it publishes of chats with images, held
beside what it renders of them.  An image's name is what vLLM calls its
identifier.
"""

import json
import time
from types import SimpleNamespace

import msgpack

import golden_serve
from fleet import MODELS
from golden_cases import CHATS, MODEL
from pictures import chat, part, picture
from record import subscribed

NAME = "images"
BLOCK = golden_serve.Vllm.block_size
QUIET = 500                     # ms without an event: all was told
QWEN, GEMMA = "qwen2-vl", "gemma3-vl"           # of images_model.py
PLACEHOLDER = 5                 # the token of a part of an image, in both
UUID = "5f0c7c1e-screen"
SMALL = picture(56, 56, 0)


class Vllm(golden_serve.Vllm):
    """An engine that reads images, and publishes events."""

    def __init__(self, folder, options):
        self.name, self.more = f"{NAME}-{folder}", options

    def command(self, ear, port, _):
        """The words that start it."""
        return [*super().command(ear, port, MODELS / self.name), *self.more,
                "--load-format", "dummy", "--num-gpu-blocks-override", "900",
                "--trust-request-mm-kwargs", "--kv-events-config", json.dumps({
                    "enable_kv_cache_events": True, "publisher": "zmq",
                    "endpoint": f"ipc://{ear.parent}/events"})]


class Listener:
    """One that subscribes to an engine's events."""

    def __init__(self, directory):
        self.socket = subscribed(f"ipc://{directory}/events")
        time.sleep(1)

    def told(self):
        """The events since the last call, of full attention."""
        found = []
        while self.socket.poll(QUIET):
            found += msgpack.unpackb(self.socket.recv_multipart()[2])[1]
        return [event for event in found
                if event["kv_cache_spec_kind"] == "full_attention"]


def learned(event):
    """From one event alone: how many tokens each image has whose end was
    told.  An offset below 0 tells how many of them came before the block."""
    ids, found = event["token_ids"], {}
    for i, keys in enumerate(event["extra_keys"] or ()):
        for name, offset in (it for it in keys or () if isinstance(it, list)):
            at = i * BLOCK + max(offset, 0)
            while at < len(ids) and ids[at] == PLACEHOLDER:
                at += 1
            if at < len(ids):
                found[name] = at - i * BLOCK - offset
    return found


class Watch:
    """An engine, and all that was seen of it."""

    def __init__(self, runner, engine, rows):
        self.runner, self.engine, self.rows = runner, engine, rows
        self.listener = Listener(engine.directory)
        self.known = {None: ((), 0)}    # a block's hash: its chain, its end
        self.images = {}                # an image's URL: its name, its ids

    def check(self, case, well, why="not as it was seen before"):
        """One check."""
        self.runner.check(self.engine.kind.name, case,
                          None if well else str(why))

    def post(self, path, body):
        """A request straight to the engine."""
        return json.loads(self.engine.send("POST", path, json.dumps(body))[2])

    def render(self, body):
        """The ids of a chat, None if it is refused, and its images: each
        with its name, its first token and how many it has."""
        rendered = self.post(CHATS + "/render", body)
        images = rendered.get("features") or {
            "mm_hashes": {"image": ()}, "mm_placeholders": {"image": ()}}
        return rendered.get("token_ids"), [
            (name, it["offset"], it["length"]) for name, it in zip(
                images["mm_hashes"]["image"],
                images["mm_placeholders"]["image"])]

    def expanded(self, body):
        """What render() answers, by a question that has a small image for
        each one that was rendered before, alone."""
        body = json.loads(json.dumps(body))
        parts = [it for message in body["messages"] for it in
                 message["content"] if "image_url" in it]
        urls = [it["image_url"]["url"] for it in parts]
        for it in parts:
            it |= part(SMALL)
        ids, ranges = self.render(body)
        found, spans, last = [], [], 0
        for url, (_, at, length) in zip(urls, ranges):
            if url not in self.images:
                alone, ((name, *at_),) = self.render(body | {"messages": chat(
                    part(None, image_url={"url": url}))})
                self.images[url] = name, alone[at_[0]:sum(at_)]
            name, own = self.images[url]
            found += ids[last:at]
            spans.append((name, len(found), len(own)))
            found += own
            last = at + length
        return found + ids[last:], spans

    def see(self, case, *parts, messages=None, **more):
        """One chat, held against what is said of all."""
        body = {"model": MODEL, "messages": messages or chat(*parts),
                "max_tokens": 1, "mm_payload": "none"} | more
        rendered, ranges = self.render(body)
        tokenized, answer = (self.post(it, body) for it in ("/tokenize",
                                                            CHATS))
        seen = SimpleNamespace(
            ids=tokenized["tokens"], events=self.listener.told(), more=more,
            cached=answer["usage"]["prompt_tokens_details"]["cached_tokens"],
            rendered=rendered, ranges=ranges)
        seen.names = [it[0] for it in seen.ranges]
        seen.learned = [learned(it) for it in seen.events]
        wrong = list(self.wrong(seen)) if rendered else []
        if not ("mm_processor_kwargs" in body or UUID in json.dumps(body)
                or GEMMA in self.engine.kind.name
                or self.expanded(body) == (rendered, ranges)):
            wrong.append("with small images it is rendered otherwise")
        self.check(case, not wrong, wrong)
        self.rows.append(f"| {self.engine.kind.name} | {case} | " + " | ".join(
            str(it) for it in (
                len(seen.ids), seen.cached,
                sum(len(it["block_hashes"]) for it in seen.events),
                [it[2] for it in seen.ranges],
                [n for it in seen.learned for n in it.values()])) + " |")
        return seen

    def wrong(self, seen):
        """What is not as what was rendered foretells: ids, blocks that were
        cached, events, and what can be learned from these."""
        adapter, salt = (seen.more.get(it) for it in ("model", "cache_salt"))
        plain = GEMMA not in self.engine.kind.name

        def block(start):
            return (seen.ids[start:start + BLOCK], (
                [adapter] * bool(adapter)
                + [[name, offset - start]
                   for name, offset, length in seen.ranges
                   if offset < start + BLOCK and start < offset + length]
                + [salt] * bool(salt and not start)) or None)

        if seen.rendered != seen.ids:
            yield "/tokenize has other ids"
        chains = {chain for chain, _ in self.known.values()}
        told, chain = 0, ()
        while told + BLOCK < len(seen.ids):
            chain = hash((chain, str(block(told))))
            if chain not in chains:
                break
            told += BLOCK
        if told != seen.cached and plain:
            yield f"{told} tokens were told before, {seen.cached} were cached"
        for event, found in zip(seen.events, seen.learned):
            chain, first = self.known[event["parent_block_hash"]]
            for i, name in enumerate(event["block_hashes"]):
                at = first + i * BLOCK
                was = (event["token_ids"][i * BLOCK:(i + 1) * BLOCK],
                       event["extra_keys"][i])
                if was != block(at):
                    yield f"{was}, not {block(at)}"
                chain = hash((chain, str(was)))
                self.known[name] = chain, at + BLOCK
            wanted = {name: length for name, offset, length in seen.ranges
                      if first < offset + length < at + BLOCK}
            if found != wanted and plain:
                yield f"learned {found}, not {wanted}"
