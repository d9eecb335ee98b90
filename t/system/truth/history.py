"""The oracle's memory: what one rank held after each of its batches."""

EVERY = 64                      # batches from one whole state to the next
KEPT = 2000                     # batches that are remembered


class History:
    """States of one life of one rank, by the engine's sequence number."""

    def __init__(self):
        self._states = []               # (seq, whole state), each EVERY
        self._changes = []              # [{Block: tiers}], of each batch
        self._first = 0                 # seq of _changes[0]
        self._now = {}
        self.handles = {}               # handle -> Block, ever said
        self._lost = []                 # batches that nobody can know, and
        self._emptied = []              # those after which that's no matter

    def append(self, state, emptied=False):
        """What is held once the next batch is applied; does it say that
        nothing is held?"""
        change = {block: tiers for block, tiers in state.items()
                  if self._now.get(block) != tiers}
        change.update((block, 0) for block in self._now
                      if block not in state)
        if not self._changes or self.last() % EVERY == 0:
            self._states.append((self.last(), self._now))
        self._now = state
        self._changes.append(change)
        for block in change:
            self.handles[block.handle] = block
        if len(self._changes) > KEPT + EVERY:
            self._forget()
        if emptied:
            self._emptied.append(self.last())

    def lose(self, seq):
        """Nobody can hear batch `seq`, not any more."""
        self._lost.append(seq)

    def lost(self, seq):
        """Whether what is held after batch `seq` can't be known."""
        known = max((one for one in self._emptied
                     if one <= seq and one not in self._lost), default=-1)
        return any(known < one <= seq for one in self._lost)

    def last(self):
        """The last batch's sequence number; -1: none yet."""
        return self._first + len(self._changes) - 1

    def state(self, seq):
        """What was held after batch `seq`; None when that isn't known."""
        if not self._first <= seq <= self.last():
            return {} if seq == -1 else None
        at, state = max((one for one in self._states if one[0] <= seq),
                        key=lambda one: one[0])
        state = dict(state)
        for change in self._changes[at + 1 - self._first:
                                    seq + 1 - self._first]:
            state.update(change)
        return {block: tiers for block, tiers in state.items() if tiers}

    def _forget(self):
        while len(self._states) > 1 and self._states[1][0] <= (
                self.last() - KEPT):
            del self._states[0]
        drop = self._states[0][0] + 1 - self._first
        del self._changes[:drop]
        self._first += drop
        if drop:
            held = set(self._states[0][1]).union(*self._changes)
            self.handles = {block.handle: block for block in held}
