"""The oracle: who holds which block, written from the contract alone.

A second implementation of the index (docs/concepts.md), as plain and slow as
it can be, with Python's xxhash and without a line of ours in C.  A block is
named by its sequence hash; a holder is (worker, rank).
"""

import json
from array import array

from xxhash import xxh3_64_intdigest

CHAIN_SEED = 1337
TIERS = ("device", "host_pinned", "disk", "external")
SCORED = (1, 3, 7)              # device; or host; or disk: cumulative


class Refused(Exception):
    """An event that the contract says is refused as a whole."""


def u64s(data):
    """Numbers from little-endian bytes."""
    numbers = array("Q")
    numbers.frombytes(data)
    return list(numbers)


def local_hashes(tokens, block_size, seed=CHAIN_SEED):
    """The local hashes of a prompt's whole blocks."""
    data = array("I", tokens).tobytes()
    width = 4 * block_size
    return [xxh3_64_intdigest(data[at:at + width], seed=seed)
            for at in range(0, len(data) - width + 1, width)]


def sequence_hashes(locals_, parent=None):
    """The sequence hashes of a chain of local hashes below a block."""
    hashes = []
    for local in locals_:
        parent = local if parent is None else xxh3_64_intdigest(
            parent.to_bytes(8, "little") + local.to_bytes(8, "little"),
            seed=CHAIN_SEED)
        hashes.append(parent)
    return hashes


class Holder:
    """What one (worker, rank) holds."""

    def __init__(self):
        self.block_of = {}              # handle -> sequence hash
        self.blocks = {}                # sequence hash -> {handle: tiers}

    def store(self, tier, parent, handles, locals_):
        """Stores a chain below a known handle, or below the root."""
        if len(handles) != len(locals_):
            raise Refused("lengths")
        if parent is not None:
            if parent not in self.block_of:
                raise Refused("unknown parent")
            parent = self.block_of[parent]
        for handle, block in zip(handles, sequence_hashes(locals_, parent)):
            if self.block_of.get(handle, block) != block:
                self._drop(handle)      # it names another block from now on
            self.block_of[handle] = block
            names = self.blocks.setdefault(block, {})
            names[handle] = names.get(handle, 0) | 1 << tier

    def remove(self, tier, handles):
        """Removes each handle from a tier; returns how many weren't there."""
        unknown = 0
        for handle in handles:
            names = self.blocks.get(self.block_of.get(handle), {})
            if not names.get(handle, 0) >> tier & 1:
                unknown += 1
                continue
            names[handle] &= ~(1 << tier)
            if not names[handle]:
                self._drop(handle)
        return unknown

    def depths(self, blocks):
        """How many of a prompt's blocks are held: device, host, disk."""
        depths = [0] * len(SCORED)
        for depth, block in enumerate(blocks, 1):
            tiers = 0
            for one in self.blocks.get(block, {}).values():
                tiers |= one
            if not tiers & SCORED[-1]:
                break
            for number, mask in enumerate(SCORED):
                if tiers & mask and depths[number] == depth - 1:
                    depths[number] = depth
        return tuple(depths)

    def holdings(self):
        """All of it, to be compared: {handle: (block, tiers)}."""
        return {handle: (block, self.blocks[block][handle])
                for handle, block in self.block_of.items()}

    def _drop(self, handle):
        block = self.block_of.pop(handle)
        del self.blocks[block][handle]
        if not self.blocks[block]:
            del self.blocks[block]


class Model:
    """What all holders hold."""

    def __init__(self):
        self.holders = {}               # (worker, rank) -> Holder

    def holder(self, worker, rank=0):
        """The holder of that name, an empty one at first."""
        return self.holders.setdefault((worker, rank), Holder())

    def apply(self, worker, events):
        """Applies the events of a normalised batch (docs/events.md)."""
        for event in events:
            holder = self.holder(worker, event[1])
            if event[0] == "s":
                holder.store(event[2], event[3], u64s(event[4]),
                             u64s(event[5]))
            elif event[0] == "r":
                holder.remove(event[2], u64s(event[3]))
            elif event[0] == "c":
                self.clear(worker, event[1])
            else:
                raise AssertionError(f"unknown event {event}")

    def clear(self, worker, rank=0):
        """Empties one holder."""
        self.holders[worker, rank] = Holder()

    def clear_worker(self, worker):
        """Empties all ranks of a worker."""
        for name, rank in self.holders:
            if name == worker:
                self.clear(name, rank)

    def replay(self, dump):
        """Applies a dump: RouterEvents, one a line."""
        for line in dump.splitlines():
            message = json.loads(line)
            tier = TIERS.index(message.get("storage_tier", "device"))
            event = message["event"]
            holder = self.holder(str(message["worker_id"]),
                                 event.get("dp_rank", 0))
            stored = event["data"].get("stored")
            if stored:
                holder.store(
                    tier, stored.get("parent_hash"),
                    [block["block_hash"] for block in stored["blocks"]],
                    [block["tokens_hash"] for block in stored["blocks"]])
            else:
                unknown = holder.remove(
                    tier, event["data"]["removed"]["block_hashes"])
                assert unknown == 0, f"a dump removes what isn't there: {line}"
        return self

    def scores(self, blocks):
        """What a query for a prompt has to answer."""
        scores = {name: holder.depths(blocks)
                  for name, holder in self.holders.items()}
        return {name: depths for name, depths in scores.items() if depths[2]}

    def holdings(self):
        """All of it, to be compared; holders of nothing left out."""
        return {name: holder.holdings()
                for name, holder in self.holders.items() if holder.block_of}

    def count(self):
        """The number of (holder, handle) pairs."""
        return sum(len(holder.block_of) for holder in self.holders.values())


def difference(ours, theirs):
    """In what two holdings differ, briefly; empty when they don't."""
    lines = []
    for name in sorted(set(ours) | set(theirs)):
        a, b = ours.get(name, {}), theirs.get(name, {})
        lost = sum(1 for handle in a if handle not in b)
        more = sum(1 for handle in b if handle not in a)
        other = sum(1 for handle in a if b.get(handle, a[handle]) != a[handle])
        if lost or more or other:
            lines.append(f"{name}: of {len(a)} handles {lost} are missing, "
                         f"{more} are too many, {other} are other blocks or "
                         f"tiers")
    return "; ".join(lines)
