"""Requests of all forms, drawn at random: (path, body, headers).

Most of them begin as others did, with one of a few system prompts or with the
conversation so far.  A tenth of the prompts of token ids end on the edge of a
block, and are sent twice.
"""

import random

from fleet import DOCS

WORDS = sorted({word for word in DOCS.split() if word.isalpha()})
COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
FIRST_ID = 100                  # below it are the special ones


class Prompts:
    """What clients send to one model."""

    def __init__(self, model, seed):
        self.model = model
        self.random = random.Random(seed)
        self.systems = [self.text(n) for n in (30, 60, 90, 180)]
        self.prefixes = [self.ids(n) for n in (31, 64, 160, 400)]

    def ids(self, n):
        """N token ids."""
        return [self.random.randrange(FIRST_ID, 2000) for _ in range(n)]

    def text(self, n):
        """N words."""
        return " ".join(self.random.choice(WORDS) for _ in range(n))

    def body(self, **fields):
        """A body: few tokens are generated, always as many."""
        return {"model": "tiny", "max_tokens": self.random.randrange(1, 9),
                "temperature": 0, "ignore_eos": True, **fields}

    def completion(self, prompt, **fields):
        """A request for a completion."""
        return COMPLETIONS, self.body(prompt=prompt, **fields), {}

    def prompt(self):
        """Token ids that others may begin with, too."""
        return self.random.choice(self.prefixes) + self.ids(
            self.random.randrange(1, 200))

    # -------------------------------------------------------------- forms

    def token_ids(self, n):
        """Prompts of token ids."""
        while n > 0:
            prompt = self.prompt()
            if self.random.random() < 0.1:
                size = self.model.block_size
                prompt = prompt[:max(size, len(prompt) // size * size)]
                prompt += self.ids(-len(prompt) % size)
                n -= 1
                yield self.completion(prompt)
            n -= 1
            yield self.completion(prompt)

    def edges(self, n):
        """Prompts that end on a block's edge, or right beside it, twice."""
        for i in range(n // 2):
            prompt = self.random.choice(self.prefixes)
            size = self.model.block_size
            prompt = prompt + self.ids(-len(prompt) % size + size
                                       * (i % 4) + (0, 0, 1, -1)[i % 4])
            for _ in "ab":
                yield self.completion(prompt)

    def texts(self, n):
        """Prompts of text."""
        for _ in range(n):
            yield self.completion(
                self.random.choice(self.systems) + " "
                + self.text(self.random.randrange(1, 80)),
                return_token_ids=True)

    def chats(self, n):
        """Conversations of several turns: a generator that is sent what the
        assistant says."""
        while n > 0:
            extra = self.random.choice([
                {}, {}, {"tools": tools(self.random.randrange(1, 4))},
                {"chat_template_kwargs": {"enable_thinking": False}}])
            messages = [{"role": "system",
                         "content": self.random.choice(self.systems)}]
            for _ in range(self.random.randrange(1, 5)):
                words = self.text(self.random.randrange(3, 60))
                messages.append({"role": "user", "content": words}
                                if self.random.random() < 0.8 else {
                    "role": "user",
                    "content": [{"type": "text", "text": words}]})
                said = yield CHATS, self.body(
                    messages=list(messages), return_token_ids=True,
                    **extra), {}
                messages.append({"role": "assistant", "content": said or "-"})
                if "tools" in extra and self.random.random() < 0.5:
                    messages[-1]["tool_calls"] = [{
                        "id": "c1", "type": "function", "function": {
                            "name": "find", "arguments": '{"q":"a"}'}}]
                    messages.append({"role": "tool", "tool_call_id": "c1",
                                     "content": self.text(5)})
                n -= 1

    def streams(self, n):
        """The same, streamed; ids and chats."""
        for i in range(n):
            if i % 2:
                yield self.completion(self.prompt(), stream=True)
                continue
            yield CHATS, self.body(stream=True, messages=[
                {"role": "system", "content": self.random.choice(
                    self.systems)},
                {"role": "user", "content": self.text(30)}]), {}

    def choices(self, n):
        """A prompt, and again with several choices (n)."""
        for _ in range(n // 2):
            prompt = self.prompt()
            yield self.completion(prompt)
            yield self.completion(prompt, n=self.random.randrange(2, 4),
                                  temperature=1)

    def lists(self, n):
        """A prompt, and again as all of a list: the router tells the first
        one's, and the engine the last one's."""
        for i in range(n // 2):
            prompt = self.prompt()
            yield self.completion(prompt)
            yield self.completion([prompt] * (2 + i % 2))

    def salts(self, n):
        """Prompts with cache salts, and the same without."""
        prompts = [self.prompt() for _ in range(3)]
        for _ in range(n):
            salt = self.random.choice([None, "tenant-a", "tenant-b", "f" * 64])
            yield self.completion(
                self.random.choice(prompts) + self.ids(3),
                **({"cache_salt": salt} if salt else {}))

    def adapters(self, n):
        """Prompts of adapters, some with the adapter's name as a salt."""
        prompts = [self.prompt() for _ in range(3)]
        for _ in range(n):
            name = self.random.choice((*self.model.adapters, "tiny"))
            path, body, _ = self.completion(
                self.random.choice(prompts) + self.ids(3), model=name)
            if self.random.random() < 0.3:
                body["cache_salt"] = self.random.choice(self.model.adapters)
            yield path, body, {} if name == "tiny" else {"x-lora": name}


def tools(n):
    """Tools that a chat can call."""
    return [{"type": "function", "function": {
        "name": name, "description": f"{name} what is asked for",
        "parameters": {"type": "object", "properties": {
            "q": {"type": "string"}}}}}
        for name in ("find", "read", "count")[:n]]
