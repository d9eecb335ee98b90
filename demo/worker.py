"""A worker of the fleet: an engine stand-in, and the relay beside it."""

import re
import sys
from pathlib import Path

import zmq

from processes import Process, free_port, wait_until

DEMO = Path(__file__).resolve().parent
MODEL = "demo"
REPLAY_MS = 5000                # that a replay may wait for its next message
END = b"\xff" * 8               # the number -1, that of a replay's end


class Worker:
    """Both processes, started one after the other.

    The engine prints its address when it serves; the relay registers it.
    """

    def __init__(self, name, directory, *options):
        """Starts the engine with more options of engine.py."""
        self.name = name
        self.directory = directory
        self.events, self.replay = (f"tcp://127.0.0.1:{free_port()}"
                                    for _ in range(2))
        self.options = options
        self.address = self.relay = None
        self.start_engine()

    def start_engine(self):
        """Starts the engine; after its end, with the endpoints it had."""
        self.engine = Process(self.name, [
            sys.executable, "-B", str(DEMO / "engine.py"), "--model", MODEL,
            "--events", self.events, "--replay", self.replay, *self.options],
            self.directory)

    def wait_ready(self):
        """Waits until the engine serves."""
        def ready():
            self.engine.check_alive()
            return re.search(r"^ready on (\S+)$", self.engine.log.read_text(),
                             re.MULTILINE)
        self.address = wait_until(f"engine {self.name}", ready)[1]

    def start_relay(self, relay, redis_url, *options):
        """Starts the program `relay` beside an engine that is ready."""
        self.relay = Process(f"{self.name}-relay", [
            str(relay), "--worker", self.name, "--redis", redis_url,
            "--events", self.events, "--replay", self.replay,
            "--address", self.address, "--model", MODEL, *options],
            self.directory)

    def replayed(self, start):
        """What the engine replays from a number on: [(number, bytes)]."""
        batches = []
        with zmq.Context() as context, \
                context.socket(zmq.DEALER) as dealer:
            dealer.rcvtimeo, dealer.linger = REPLAY_MS, 0
            dealer.connect(self.replay)
            dealer.send_multipart([b"", start.to_bytes(8, "big")])
            while True:
                empty, number, payload = dealer.recv_multipart()
                assert empty == b"" and len(number) == 8
                if number == END:
                    assert payload == b""
                    return batches
                batches.append((int.from_bytes(number, "big"), payload))

    def processes(self):
        """Those that were started, by the names of their logs."""
        return [process for process in (self.engine, self.relay) if process]

    def stop(self):
        """Ends both, the engine first: its relay would wait for it."""
        for process in self.processes():
            process.stop()
