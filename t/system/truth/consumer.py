"""A naive consumer of an engine's own events: it proves the stand-ins.

It hears what an engine sends, without a relay or a router, and has to come to
what the oracle says.  Plain and slow; nothing is bounded.
"""

import msgpack
import zmq
from xxhash import xxh3_64_intdigest

from .blocks import CHAIN_SEED, INDEX_BLOCK, SALT_TAG, le64, seed_of
from .cache import DEVICE, HOST
from .engine import END

STORED = ("block_hashes", "parent_block_hash", "token_ids", "block_size",
          "lora_id", "medium", "seventh", "extra_keys")
REMOVED = ("block_hashes", "medium")


def number_of(value):
    """A hash in any of its forms as 64 bits."""
    if isinstance(value, bytes):
        return int.from_bytes(value[-8:], "big")
    return None if value is None else value % (1 << 64)


def flat(tokens):
    """Of pairs, all their tokens, each once."""
    if not isinstance(tokens[0], list):
        return tokens
    return [*(pair[0] for pair in tokens), tokens[-1][1]]


class Consumer:
    """What one rank's batches say that it holds."""

    def __init__(self, refcount):
        self.refcount = refcount
        self.held = {}                  # handle -> {tier: count}
        self.place = {}                 # handle -> (sequence hashes, seed)

    def apply(self, payload):
        """One batch."""
        batch = msgpack.unpackb(payload)
        events = batch["events"] if isinstance(batch, dict) else batch[1]
        for event in events:
            if isinstance(event, list):
                names = STORED if event[0] == "BlockStored" else REMOVED
                fields = dict(zip(names, event[1:]))
                kind = event[0]
            else:
                fields, kind = event, event["type"]
            if kind == "AllBlocksCleared":
                self.held.clear()
            elif kind == "BlockStored":
                self._store(fields)
            else:
                self._remove(fields)

    def _store(self, fields):
        handles = list(map(number_of, fields["block_hashes"]))
        tier = HOST if fields["medium"] == "CPU" else DEVICE
        if fields["token_ids"]:
            self._place(fields, handles)
        for handle in handles:
            counts = self.held.setdefault(handle, {})
            if fields.get("origin") == "REUSED" and counts.get(tier):
                continue
            counts[tier] = counts.get(tier, 0) * self.refcount + 1

    def _place(self, fields, handles):
        parent = number_of(fields["parent_block_hash"])
        seventh = fields.get("seventh")
        metadata = fields.get("metadata") or (
            seventh if isinstance(seventh, dict) else {})
        if parent is None:
            lora = seventh if isinstance(seventh, str) \
                else fields.get("lora_name")
            keys = fields.get("extra_keys") or [None]
            salts = [key[len(SALT_TAG):] for key in keys[0] or ()
                     if key.startswith(SALT_TAG)]
            salt = metadata.get("cache_salt") or (salts or [""])[0]
            above, seed = None, seed_of(lora or "", salt)
        else:
            chain, seed = self.place[parent]
            above = chain[-1]
        tokens, size = fields["token_ids"], fields["block_size"]
        assert len(tokens) == size * len(handles), (len(tokens), size)
        for number, handle in enumerate(handles):
            chain = []
            for at in range(number * size, (number + 1) * size, INDEX_BLOCK):
                local = xxh3_64_intdigest(b"".join(
                    token.to_bytes(4, "little")
                    for token in flat(tokens[at:at + INDEX_BLOCK])),
                    seed=seed)
                above = local if above is None else xxh3_64_intdigest(
                    le64(above) + le64(local), seed=CHAIN_SEED)
                chain.append(above)
            self.place[handle] = chain, seed

    def _remove(self, fields):
        tier = HOST if fields["medium"] == "CPU" else DEVICE
        left = fields.get("remaining_copy_counts")
        for number, handle in enumerate(map(number_of,
                                            fields["block_hashes"])):
            counts = self.held[handle]
            assert counts.get(tier), f"{handle} isn't there"
            counts[tier] = left[number] if left else counts[tier] - 1
            if not counts[tier]:
                del counts[tier]
            if not counts:
                del self.held[handle]

    def holdings(self):
        """{handle: (sequence hashes, tiers)}."""
        return {handle: (tuple(self.place[handle][0]), sum(counts))
                for handle, counts in self.held.items()}


class Listener:
    """Hears one rank's sockets."""

    def __init__(self, ports):
        self.context = zmq.Context()
        self.subscriber = self.context.socket(zmq.SUB)
        self.subscriber.subscribe(b"")
        self.subscriber.rcvhwm = 0
        self.subscriber.connect(f"tcp://127.0.0.1:{ports[0]}")
        self.asker = self.context.socket(zmq.DEALER)
        self.asker.connect(f"tcp://127.0.0.1:{ports[1]}")
        self.asker.rcvtimeo = self.subscriber.rcvtimeo = 60_000

    def heard(self, seconds):
        """The messages that come until nothing has for so long."""
        while self.subscriber.poll(int(seconds * 1000)):
            frames = self.subscriber.recv_multipart()
            yield int.from_bytes(frames[-2], "big"), frames[-1]

    def heard_until(self, last):
        """The messages that come, up to that one."""
        seq = -1
        while seq < last:
            frames = self.subscriber.recv_multipart()
            seq = int.from_bytes(frames[-2], "big")
            yield seq, frames[-1]

    def replayed(self, start):
        """What the engine still has from a message on."""
        self.asker.send_multipart((b"", start.to_bytes(8, "big")))
        while True:
            frames = self.asker.recv_multipart()
            seq = int.from_bytes(frames[1], "big")
            if seq == END:
                return
            yield seq, frames[2]

    def close(self):
        """Ends."""
        self.context.destroy(linger=0)
