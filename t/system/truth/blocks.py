"""Blocks and prompts: what engines hold, hashed from the contract alone.

docs/concepts.md, with Python's xxhash and without a line of libkvr.
"""

from array import array

from xxhash import xxh3_64_intdigest

INDEX_BLOCK = 16                # the zone's block size
U64 = (1 << 64) - 1
CHAIN_SEED = 1337
SALT_TAG = "dynamo-cache-salt:"


def seed_of(lora, salt):
    """The seed of local hashes for a LoRA adapter and a cache salt."""
    seed = CHAIN_SEED
    if lora:
        seed += xxh3_64_intdigest(lora.encode(), seed=0)
    if salt:
        seed += xxh3_64_intdigest(salt.encode(), seed=1)
    return seed & U64


def le64(number):
    """A number as eight little-endian bytes."""
    return number.to_bytes(8, "little")


class Block:
    """One of an engine's blocks: it spans one or more of the index's."""

    __slots__ = ("handle", "parent", "tokens", "locals", "sequence", "depth",
                 "lora", "salt")

    def __init__(self, parent, tokens, lora, salt, secret):
        """A block of tokens below another Block, or below the root; with one
        token more than whole blocks have it is one of pairs."""
        data = array("I", tokens).tobytes()
        more = len(tokens) % INDEX_BLOCK
        seed = seed_of(lora, salt)
        above = parent.sequence[-1] if parent else None
        self.parent, self.tokens = parent, tokens
        self.lora, self.salt = lora, salt
        self.depth = parent.depth + 1 if parent else 0
        self.locals, self.sequence = [], []
        for at in range(0, len(tokens) - more, INDEX_BLOCK):
            local = xxh3_64_intdigest(
                data[4 * at:4 * (at + INDEX_BLOCK + more)], seed=seed)
            above = local if above is None else xxh3_64_intdigest(
                le64(above) + le64(local), seed=CHAIN_SEED)
            self.locals.append(local)
            self.sequence.append(above)
        root = f"{lora}\0{salt}".encode()
        self.handle = xxh3_64_intdigest(
            (le64(parent.handle) if parent else root) + data, seed=secret)


class Prompts:
    """Prompts whose beginnings are shared, with adapters and salts."""

    def __init__(self, rng, groups=6, each=4, tokens=640):
        self.rng = rng
        self._prompts = []
        for group in range(groups):
            lora = rng.choice(("", "", "adapter-a", "adapter-b"))
            salt = rng.choice(("", "", "tenant-1")) if group else "tenant-2"
            head = self._random(rng.randrange(64, tokens // 2))
            self._prompts += [(head + self._random(tokens - len(head)),
                               lora, salt) for _ in range(each)]

    def pick(self, rng, keys):
        """A prompt: (tokens, lora, salt); its tail may be its own.  keys:
        "all", only "salt", or none."""
        tokens, lora, salt = rng.choice(self._prompts)
        tokens = tokens[:rng.randrange(32, len(tokens) + 1)]
        if rng.random() < 0.3:
            tokens = tokens + [rng.randrange(1 << 17)
                               for _ in range(rng.randrange(1, 96))]
        return tokens, lora if keys == "all" else "", salt if keys else ""

    def _random(self, count):
        return [self.rng.randrange(1 << 17) for _ in range(count)]
