"""Batches that a test makes, to Redis as kv-relay sends them.

For every batch of events one MULTI

    XADD    kv-log:{<worker>}  <epoch>-<seq>  m <envelope>
    PUBLISH kv-events:<worker>                  <envelope>

and every second a heartbeat and the worker's membership.  publish() only
appends to a ring, a task of its own sends.  After
each (re)connect the stream's last id says what Redis has, and the rest
follows from the ring.  What the ring no longer has is a gap: `complete` is
then false until the next clear.
"""

import asyncio
import contextlib
import logging
import time

import msgpack
from redis import asyncio as aioredis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

log = logging.getLogger("publisher")

RING_MESSAGES = 10_000          # what may be sent late, or again
LOG_MESSAGES = 100_000          # the stream's length, about
SEND_BATCH = 64                 # envelopes per MULTI when catching up
BEAT_SECONDS = 1.0              # heartbeat and membership
MEMBER_TTL_SECONDS = 15
RETRY_SECONDS = (0.2, 5.0)      # first and longest wait for Redis
SOCKET_TIMEOUT_SECONDS = 5.0
RANK = 0


class Superseded(Exception):
    """Another publisher of a higher epoch writes this worker's log."""


class Publisher:
    """Sends one worker's batches, in order, each exactly once to the log."""

    def __init__(self, url, worker, membership, channel_prefix="kv-events:",
                 ring=RING_MESSAGES):
        self._url = url
        self._worker = worker
        self._membership = membership       # constant fields of kv-worker:
        self._channel = channel_prefix + worker
        self._log_key = "kv-log:{%s}" % worker
        self._member_key = "kv-worker:{%s}" % worker
        self._ring_limit = ring
        self._ring = {}                     # seq -> (payload, begins_clear)
        self._wake = asyncio.Event()
        self._closing = False
        self.epoch = 0                      # 0: Redis has not been asked yet
        self.seq = 0                        # last one made
        self.sent = 0                       # last one that Redis has
        self.complete = True

    def publish(self, events):
        """Queues one batch of normalised events; returns at once."""
        self.seq += 1
        self._ring[self.seq] = (msgpack.packb(events), events[0][0] == "c")
        self._ring.pop(self.seq - self._ring_limit, None)
        self._wake.set()

    def close(self):
        """Lets run() send what is queued, deregister and return."""
        self._closing = True
        self._wake.set()

    async def run(self):
        """Sends until close(), whatever happens to Redis meanwhile."""
        wait, longest = RETRY_SECONDS
        away = False
        while not self._closing:
            client = self._client()
            try:
                await self._catch_up_with_log(client)
                if away:
                    log.warning("redis is back, the log has seq %d of %d",
                                self.sent, self.seq)
                away, wait = False, RETRY_SECONDS[0]
                await self._send_until_closed(client)
            except Superseded as err:
                log.error("publishing stops: %s", err)
                return
            except (RedisError, OSError, asyncio.TimeoutError) as err:
                if not away:
                    log.warning("redis is away, serving goes on: %s", err)
                away = True
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._closed(), wait)
                wait = min(2 * wait, longest)
            finally:
                with contextlib.suppress(RedisError, OSError):
                    await client.close()

    # ---------------------------------------------------------- connection

    def _client(self):
        """A client that connects once.

        redis-py reconnects silently between two commands; but a new
        connection may lead to a Redis that has lost the log, so each one has
        to begin with _catch_up_with_log().
        """
        connected = False

        async def connect(connection):
            nonlocal connected
            if connected:
                raise RedisConnectionError("the connection was lost")
            connected = True
            await connection.on_connect()

        return aioredis.from_url(
            self._url, redis_connect_func=connect,
            socket_timeout=SOCKET_TIMEOUT_SECONDS,
            socket_connect_timeout=SOCKET_TIMEOUT_SECONDS)

    async def _catch_up_with_log(self, client):
        last = await client.xrevrange(self._log_key, count=1)
        epoch, seq = (0, 0)
        if last:
            epoch, seq = map(int, last[0][0].split(b"-"))
        if self.epoch == 0:
            known = await client.hget(self._member_key, "epoch")
            self.epoch = max(int(time.time() * 1000), epoch + 1,
                             int(known or 0) + 1)
        if epoch > self.epoch:
            raise Superseded(f"{self._log_key} has epoch {epoch}, "
                             f"ours is {self.epoch}")
        self.sent = seq if epoch == self.epoch else 0

    # ------------------------------------------------------------- sending

    async def _send_until_closed(self, client):
        next_beat = 0.0
        while True:
            self._wake.clear()
            while self.sent < self.seq:
                await self._send_some(client)
            if self._closing:
                await self._deregister(client)
                return
            now = time.monotonic()
            if now >= next_beat:
                await self._beat(client)
                next_beat = now + BEAT_SECONDS
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), next_beat - now)

    async def _send_some(self, client):
        oldest = next(iter(self._ring))
        if self.sent + 1 < oldest:
            log.error("events %d to %d are lost: they are no longer in the "
                      "ring of %d", self.sent + 1, oldest - 1,
                      self._ring_limit)
            self.complete = False
            self.sent = oldest - 1
        last = min(self.seq, self.sent + SEND_BATCH)
        pipe = client.pipeline(transaction=True)
        for seq in range(self.sent + 1, last + 1):
            payload, begins_clear = self._ring[seq]
            if begins_clear:
                self.complete = True
            envelope = self._envelope(seq, payload)
            pipe.xadd(self._log_key, {"m": envelope},
                      id=f"{self.epoch}-{seq}", maxlen=LOG_MESSAGES)
            pipe.publish(self._channel, envelope)
        try:
            await pipe.execute()
        except ResponseError as err:
            if "equal or smaller" in str(err):
                raise Superseded(str(err)) from err
            raise
        self.sent = last

    async def _beat(self, client):
        pipe = client.pipeline(transaction=True)
        pipe.publish(self._channel, self._envelope(self.sent, None))
        pipe.hset(self._member_key, mapping={
            **self._membership, "epoch": self.epoch, "seq": self.sent,
            "complete": int(self.complete)})
        pipe.expire(self._member_key, MEMBER_TTL_SECONDS)
        pipe.sadd("kv-workers", self._worker)
        await pipe.execute()

    async def _deregister(self, client):
        pipe = client.pipeline(transaction=True)
        pipe.delete(self._member_key)
        pipe.srem("kv-workers", self._worker)
        await pipe.execute()

    def _envelope(self, seq, payload):
        return msgpack.packb(["kvr1", self._worker, self.epoch, seq,
                              self.complete, RANK, payload])

    async def _closed(self):
        while not self._closing:
            self._wake.clear()
            await self._wake.wait()
