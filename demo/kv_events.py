"""An engine's KV events by ZeroMQ, as vLLM publishes them.

Each batch of events is one message of a PUB socket,

    [topic] [number, 8 bytes big-endian] [msgpack [time, events, rank]]

counted from 0.  The last ones are kept for a ROUTER socket: asked with an
empty frame and a number, it answers [empty] [number] [payload] for each from
there on that it has, and ends with the number -1 and no payload.
"""

import time
from collections import deque

import msgpack
import zmq
import zmq.asyncio

TOPIC = b""
RANK = 0
KEPT_BATCHES = 10_000           # vLLM's buffer_steps
QUEUED_BATCHES = 100_000        # its hwm, for each subscriber
END = (-1).to_bytes(8, "big", signed=True)


class Publisher:
    """One engine's two sockets, bound to their endpoints."""

    def __init__(self, endpoint, replay=None, kept=KEPT_BATCHES):
        self._context = zmq.Context()
        self._pub = self._context.socket(zmq.PUB)
        self._pub.sndhwm = QUEUED_BATCHES
        self._pub.bind(endpoint)
        self._replay = None
        if replay:
            self._replay = zmq.asyncio.Socket(self._context, zmq.ROUTER)
            self._replay.sndhwm = 0     # a ROUTER drops what is above it
            self._replay.bind(replay)
        self._number = 0
        self._kept = deque(maxlen=kept)

    def publish(self, events):
        """Sends one batch, and keeps it; never waits."""
        number = self._number.to_bytes(8, "big")
        payload = msgpack.packb([time.time(), events, RANK])
        self._number += 1
        self._kept.append((number, payload))
        self._pub.send_multipart([TOPIC, number, payload])

    async def run(self):
        """Answers replays until it is cancelled."""
        while self._replay:
            peer, *frames = await self._replay.recv_multipart()
            if len(frames) != 2 or len(frames[1]) != 8:
                continue
            for number, payload in list(self._kept):
                if number >= frames[1]:
                    await self._replay.send_multipart(
                        [peer, b"", number, payload])
            await self._replay.send_multipart([peer, b"", END, b""])

    def close(self):
        """Closes both; what is on its way is not waited for."""
        self._pub.close(linger=0)
        # pyzmq 24: Context.destroy() waits for an asyncio socket for ever
        if self._replay:
            self._replay.close(linger=0)
        self._context.term()
