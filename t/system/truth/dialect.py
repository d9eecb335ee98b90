"""Events as engines write them: docs/events.md."""

import time

import msgpack

from .blocks import INDEX_BLOCK, SALT_TAG
from .cache import DEVICE, Cleared, Removed, Stored


def signed(number):
    """64 bits as a signed number: SGLang's hashes."""
    return number - (1 << 64) if number >> 63 else number


def pairs(tokens):
    """Each token with the one behind it."""
    return list(zip(tokens, tokens[1:]))


class Dialect:
    """How one engine writes: `hashes` plain, signed or bytes."""

    def __init__(self, form="array", hashes="plain", counts=False,
                 metadata=False, origin=False):
        self.form, self.hashes = form, hashes
        self.counts, self.metadata, self.origin = counts, metadata, origin

    def batch(self, events, rank, more=0):
        """A batch's bytes; rank is None where there is but one.  With so
        many bytes more, of a field that nobody knows."""
        written = [self._event(event) for event in events]
        if self.form == "map":
            batch = {"ts": time.time(), "events": written}
            if rank is not None:
                batch["data_parallel_rank"] = rank
            if more:
                batch["more"] = bytes(more)
            return msgpack.packb(batch)
        batch = [time.time(), written]
        if rank is not None or more:
            batch.append(rank)
        if more:
            batch.append(bytes(more))
        return msgpack.packb(batch)

    def _event(self, event):
        if isinstance(event, Cleared):
            return self._form("AllBlocksCleared", {})
        hashes = [self._hash(block) for block in event.blocks]
        medium = "GPU" if event.tier == DEVICE else "CPU"
        if isinstance(event, Removed):
            fields = {"block_hashes": hashes, "medium": medium}
            if self.counts and event.tier == DEVICE:
                fields["remaining_copy_counts"] = [
                    event.remaining] * len(hashes)
            return self._form("BlockRemoved", fields)
        assert isinstance(event, Stored)
        return self._form("BlockStored", self._stored(event, hashes, medium))

    def _stored(self, event, hashes, medium):
        if event.tier != DEVICE:        # the offload tier knows no tokens
            return {"block_hashes": hashes, "parent_block_hash": None,
                    "token_ids": [], "block_size": 0, "lora_id": None,
                    "medium": medium}
        first = event.blocks[0]
        more = len(first.tokens) % INDEX_BLOCK
        fields = {
            "block_hashes": hashes,
            "parent_block_hash": first.parent and self._hash(first.parent),
            "token_ids": [token for block in event.blocks
                          for token in (pairs(block.tokens) if more
                                        else block.tokens)],
            "block_size": len(first.tokens) - more,
            "lora_id": 7 if first.lora else None,
            "medium": medium}
        if self.metadata:               # SGLang: no adapters of ours
            fields["metadata"] = {"cache_salt": first.salt,
                                  "session_id": None} if first.salt else None
            return fields
        fields["lora_name"] = first.lora or None
        if self.origin:
            fields["origin"] = "REUSED" if event.reused else "NEW"
        if first.lora or first.salt:
            fields["extra_keys"] = [self._keys(block)
                                    for block in event.blocks]
        return fields

    @staticmethod
    def _keys(block):
        keys = [block.lora] if block.lora else []
        if block.salt and block.parent is None:
            keys.append(SALT_TAG + block.salt)
        return keys or None

    def _hash(self, block):
        if self.hashes == "signed":
            return signed(block.handle)
        if self.hashes == "bytes":      # a SHA-256: its end counts
            return block.tokens[0].to_bytes(24, "big") \
                + block.handle.to_bytes(8, "big")
        return block.handle

    def _form(self, tag, fields):
        if self.form == "map":
            return {"type": tag, **fields}
        return [tag, *fields.values()]
