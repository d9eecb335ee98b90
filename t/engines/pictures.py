"""Images, and chats that have them."""

import base64
import random
import struct
import zlib

SYSTEM = "You look at the pictures of a harbour, and tell what is in them."


def picture(width, height, seed, level=6):
    """A PNG of stripes."""
    draw = random.Random(seed)
    rows = b"".join(b"\0" + draw.randbytes(3) * width for _ in range(height))
    chunks = ((b"IHDR", struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)),
              (b"IDAT", zlib.compress(rows, level)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data
        + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks)


def part(it, **more):
    """A part of a message: of a text, an image's bytes, or None."""
    if isinstance(it, str):
        return {"type": "text", "text": it}
    url = it and {"url": "data:image/png;base64,"
                  + base64.b64encode(it).decode()}
    return {"type": "image_url", "image_url": url} | more


def chat(*parts):
    """A chat of a system prompt and one message."""
    return [{"role": "system", "content": SYSTEM},
            {"role": "user", "content": [
                it if isinstance(it, dict) else part(it) for it in parts]}]
