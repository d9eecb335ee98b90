"""The ceiling of a hit rate: what no routing can do better.

One cache without a bound has seen all requests, each of which ended before the
next one came.
"""

from kv_cache import Sequence


class Ceiling:
    """Prompt tokens, and those that such a cache has.

    `block_size` is the engines': a cache gives whole blocks, and never the
    last token of a prompt.
    """

    def __init__(self, block_size):
        self.tokens = 0
        self.cached = 0
        self._block_size = block_size
        self._known = set()

    def add(self, prompt, answer):
        """The next request: the token ids of its prompt and of its answer."""
        sequence = Sequence(prompt, self._block_size)
        self.tokens += len(prompt)
        for handle in sequence.handles[:(len(prompt) - 1) // self._block_size]:
            if handle not in self._known:
                break
            self.cached += self._block_size
        # the answer's last token is never computed
        sequence.extend(answer[:-1])
        self._known.update(sequence.handles)

    def rate(self):
        """The part of all prompt tokens that such a cache has, 0..1."""
        return self.cached / self.tokens if self.tokens else 0.0
