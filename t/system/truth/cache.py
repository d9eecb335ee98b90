"""An engine's KV cache, one rank's, and the events that it says of it.

Slots on the device, taken from the least recently used; a host tier behind
it, which is filled later.  What is true is in device and host alone; which
events are said of a change is the profile's affair.
"""

from collections import OrderedDict, deque

from .blocks import Block

DEVICE, HOST = 1, 2             # bits: a set of tiers


class Stored:
    """BlockStored: a chain of blocks; on the host without tokens; reused
    ones are told of once more."""

    def __init__(self, blocks, tier=DEVICE, reused=False):
        self.blocks, self.tier, self.reused = blocks, tier, reused


class Removed:
    """BlockRemoved: blocks, and how many copies are left of each."""

    def __init__(self, blocks, tier=DEVICE, remaining=0):
        self.blocks, self.tier, self.remaining = blocks, tier, remaining


class Cleared:
    """AllBlocksCleared."""


class Cache:
    """What one rank holds."""

    def __init__(self, profile, secret, rng):
        self.profile, self.secret, self.rng = profile, secret, rng
        self.known = {}                 # (parent, tokens, keys) -> Block
        self.copies = {}                # Block -> copies on the device
        self.slots = OrderedDict()      # (Block, number) -> None, oldest first
        self.host = OrderedDict()       # Block -> None, oldest first
        self._offloads = deque()        # (step, [Block, ...])
        self._number = self._step = 0

    def step(self, prompt):
        """A request for a prompt: the events that follow from it."""
        self._step += 1
        events = []
        self._request(self._chain(*prompt), events)
        while self._offloads and self._offloads[0][0] <= self._step:
            self._offload(self._offloads.popleft()[1], events)
        return events

    def clear(self):
        """Empties all tiers: the events that say so."""
        self.copies.clear()
        self.slots.clear()
        self.host.clear()
        self._offloads.clear()
        return [Cleared()]

    def state(self):
        """What is held: {Block: tiers}."""
        state = dict.fromkeys(self.copies, DEVICE)
        for block in self.host:
            state[block] = state.get(block, 0) | HOST
        return state

    # ------------------------------------------------------------ requests

    def _chain(self, tokens, lora, salt):
        """The whole blocks of a prompt; the same ones for the same prompt."""
        size, more = self.profile.block_size, int(self.profile.pairs)
        chain, parent = [], None
        for at in range(0, len(tokens) - size - more + 1, size):
            part = tuple(tokens[at:at + size + more])
            name = (parent.handle if parent else None, part, lora, salt)
            parent = self.known.get(name)
            if parent is None:
                parent = Block(chain[-1] if chain else None, part, lora, salt,
                               self.secret)
                self.known[name] = parent
            chain.append(parent)
        if len(self.known) > 20 * self.profile.slots:
            # one handle is one Block, as long as it may be held
            used = self.copies.keys() | self.host.keys() | set(chain)
            used.update(*(blocks for _, blocks in self._offloads))
            self.known = {name: block for name, block in self.known.items()
                          if block in used}
        return chain

    def _request(self, chain, events):
        chain = chain[:self.profile.slots // 3]
        hits = 0
        for block in chain:
            if block not in self.copies:
                break
            hits += 1
        if hits == len(chain) > 0:      # the last token is computed anyway
            hits -= 1
        if self.profile.copies == "none":       # a radix tree: no copies
            while hits < len(chain) and chain[hits] in self.copies:
                hits += 1
        fresh = chain[hits:]
        if self.profile.copies == "none":
            fresh = [block for block in fresh if block not in self.copies]
        self._touch(chain)
        self._evict(len(fresh), set(chain), events)
        for block in reversed(fresh):
            self._number += 1
            self.slots[block, self._number] = None
        for block in fresh:
            self.copies[block] = self.copies.get(block, 0) + 1
        if self.profile.full_report:
            events += [Stored(run, reused=True) for run in self._runs(
                [block for block in chain if block not in fresh])]
        events += [Stored(run) for run in self._runs(fresh)]
        if self.profile.offload and self.rng.random() < 0.5:
            first = self.rng.randrange(len(chain)) if chain else 0
            blocks = chain[first:first + self.rng.randrange(1, 8)]
            self._offloads.append((self._step + self.rng.randrange(0, 12),
                                   blocks))

    def _runs(self, blocks):
        """The chains that blocks are, in the sizes that events have."""
        run = []
        for block in blocks:
            if run and (block.parent is not run[-1]
                        or len(run) == self.profile.event_blocks):
                yield run
                run = []
            run.append(block)
        if run:
            yield run

    def _touch(self, chain):
        chain = set(chain)
        for slot in [slot for slot in self.slots if slot[0] in chain]:
            self.slots.move_to_end(slot)

    def _evict(self, count, kept, events):
        over = len(self.slots) + count - self.profile.slots
        for slot in list(self.slots):
            if over <= 0:
                break
            block = slot[0]
            if self.profile.leaves and any(
                    other.parent is block for other in self.copies):
                continue
            if block in kept and self.copies[block] == 1:
                continue
            del self.slots[slot]
            over -= 1
            left = self.copies[block] - 1
            if left:
                self.copies[block] = left
            else:
                del self.copies[block]
            if left == 0 or self.profile.copies == "each":
                events.append(Removed([block], DEVICE, left))

    def _offload(self, blocks, events):
        fresh = [block for block in blocks if block not in self.host]
        for block in fresh:
            self.host[block] = None
        if fresh:
            events.append(Stored(fresh, HOST))
        over = []
        while len(self.host) > self.profile.host_slots:
            over.append(self.host.popitem(last=False)[0])
        if over:
            events.append(Removed(over, HOST))
