"""A stand-in for TensorRT-LLM: its events are drained over HTTP, and whoever
drains them has them alone (docs/events.md).

Blocks that leave the device may go to the host, and come back from there; the
oracle counts each event by its event_id.
"""

import json
import random
import threading
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .cache import DEVICE, HOST, Cache, Stored
from .engine import Profile
from .history import History

PATH = "/kv_cache_events"
WINDOW = 4096                   # tokens of attention
HOST_BLOCKS = 40


class Rank:
    """One of its ranks: they say all at one place, and count for themselves."""

    def __init__(self, number):
        self.number = number
        self.lives = []
        self.cache = None
        self.held = {}                  # Block -> tier
        self.host = OrderedDict()       # Block -> None, oldest first
        self.pending = []               # events that nobody has drained
        self.named = False

    def begin(self, cache, named):
        """A new life; do its events name the rank?"""
        self.named = named
        self.cache = cache
        self.lives.append(History())
        self.held, self.host, self.pending = {}, OrderedDict(), []
        self.say({"type": "created", "num_blocks_per_cache_level":
                  [cache.profile.slots, HOST_BLOCKS]})

    def say(self, data):
        """One event, and what is true behind it."""
        history = self.lives[-1]
        history.append(dict(self.held))
        event = {"event_id": history.last(), "data": data,
                 "window_size": WINDOW}
        if self.named:
            event["attention_dp_rank"] = self.number
        self.pending.append(event)

    def take(self):
        """What was said since the last time."""
        events, self.pending = self.pending, []
        return events


class TrtEngine:
    """An engine whose relay polls it."""

    def __init__(self, name, prompts, seed, ranks=1):
        self.name, self.prompts = name, prompts
        self.profile = Profile(name, None, copies="none", leaves=True,
                               keys=None, ranks=ranks)
        self.rng = random.Random(seed)
        self.lock = threading.RLock()
        self.ranks = [Rank(number) for number in range(ranks)]
        self.batches = 0
        self.relays = 0                 # that were ever started for it
        self.steady = True              # it never clears
        self.port = None
        self._more = 0                  # bytes of what comes next
        self._server = None
        self._going = False

    def start(self, port):
        """Begins its first life."""
        self.port = port
        self.rise()

    def rise(self):
        """Begins a life."""
        engine = self

        class Handler(BaseHTTPRequestHandler):
            """Answers the drain."""

            protocol_version = "HTTP/1.1"

            def _drain(self):
                length = int(self.headers.get("Content-Length") or 0)
                self.rfile.read(length)
                known = self.path.split("?")[0] == PATH
                body = json.dumps(engine.drain()).encode() if known else b""
                self.send_response(200 if known else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = _drain

            def log_message(self, *_):
                """Says nothing."""

        class Server(ThreadingHTTPServer):
            """Ends with its threads."""

            allow_reuse_address = daemon_threads = True

            def handle_error(self, *_):
                """A relay may be killed at any time."""

        with self.lock:
            self._more = 0
            for rank in self.ranks:
                rank.begin(Cache(self.profile, self.rng.getrandbits(63),
                                 self.rng), len(self.ranks) > 1)
            self._going = True
        self._server = Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,),
                         daemon=True).start()

    def fall(self):
        """Ends as a killed process does."""
        with self.lock:
            self._going = False
        self._server.shutdown()
        self._server.server_close()

    def stop(self):
        """Ends for good."""
        if self._going:
            self.fall()

    def heal(self):
        """Begins anew: it can't be cleared."""
        self.fall()
        self.rise()

    def drain(self):
        """The events since the last drain; they are gone now."""
        with self.lock:
            if not self._going:
                return []
            events = [event for rank in self.ranks for event in rank.take()]
            if self._more and events:
                events[0]["more"] = "x" * self._more
                self._more = 0
                self._lose(events)
            return events

    def lose(self):
        """Somebody else drains it; is there anything?"""
        with self.lock:
            events = self.drain()
            self._lose(events)
            return bool(events)

    def swell(self, size):
        """The next events are more than anybody reads: so many bytes."""
        with self.lock:
            self._more = size

    def swollen(self):
        """Whether they have not been drained yet."""
        return bool(self._more)

    def _lose(self, events):
        for event in events:
            self.ranks[event.get("attention_dp_rank", 0)].lives[-1].lose(
                event["event_id"])

    def step(self):
        """A request."""
        with self.lock:
            if not self._going:
                return
            rank = self.rng.choice(self.ranks)
            for event in rank.cache.step(self.prompts.pick(self.rng, None)):
                self.batches += 1
                if isinstance(event, Stored):
                    self._stored(rank, event.blocks)
                else:
                    self._removed(rank, event.blocks)
            while len(rank.host) > HOST_BLOCKS:
                self._remove(rank, rank.host.popitem(last=False)[0])

    def position(self):
        """What was said last, of each rank: [(life, event_id)]."""
        with self.lock:
            return [(len(rank.lives) - 1, rank.lives[-1].last())
                    for rank in self.ranks]

    def _stored(self, rank, blocks):
        run = []
        for block in blocks:
            if block in rank.host:
                self._store(rank, run)
                run = []
                del rank.host[block]
                self._move(rank, block, HOST, DEVICE)
            else:
                run.append(block)
        self._store(rank, run)

    @staticmethod
    def _store(rank, run):
        if not run:
            return
        rank.held.update(dict.fromkeys(run, DEVICE))
        rank.say({"type": "stored",
                  "parent_hash": run[0].parent and run[0].parent.handle,
                  "blocks": [{"type": "stored_block",
                              "block_hash": block.handle,
                              "tokens": [{"type": "unique_token",
                                          "token_id": token,
                                          "token_extra_id": 0}
                                         for token in block.tokens],
                              "lora_id": None, "cache_level": 0,
                              "priority": 35} for block in run]})

    def _removed(self, rank, blocks):
        for block in blocks:
            if self.rng.random() < 0.4:
                rank.host[block] = None
                self._move(rank, block, DEVICE, HOST)
            else:
                self._remove(rank, block)

    @staticmethod
    def _move(rank, block, old, new):
        rank.held[block] = new
        levels = {DEVICE: 0, HOST: 1}
        rank.say({"type": "updated", "block_hash": block.handle,
                  "cache_level": {"type": "event_diff",
                                  "new_value": levels[new],
                                  "old_value": levels[old]},
                  "priority": None})

    @staticmethod
    def _remove(rank, block):
        del rank.held[block]
        rank.say({"type": "removed", "block_hashes": [block.handle]})
