#!/usr/bin/env python3
"""What kv-relay says: its log, /health and /ready."""

import fcntl
import os
import re
import select
import socket
import subprocess
import sys
import time
import urllib.request

import test_relay
from relay import RELAY, stored
from stage import PATIENCE, ROOT, free_port
from processes import wait_until
from tap import Skip
from wires import Listener


class Web(Listener):
    """Speaks no ZMQ."""

    def __init__(self, port=0):
        super().__init__(port=port)
        self.times = 0

    def serve(self, client):
        """The same to everybody."""
        self.times += 1
        client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        client.close()


def page_of(port, path):
    """What a relay serves there."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}",
                                timeout=PATIENCE) as answer:
        return answer.read().decode()


class Log(test_relay.Tests):
    """Lines that come once, and those that must not stop it."""

    def pipe_full(self):
        """a stderr that nobody reads stops nothing; what was lost is said"""
        out, into = os.pipe()
        fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, 4096)
        os.write(into, b"x" * 3899 + b"\n")
        self._full("full-pipe", out, into)

    def socket_full(self):
        """nor does a socket, as systemd's"""
        out, into = socket.socketpair()
        self._fill(into.fileno())
        self._full("full-socket", out.detach(), into.detach())

    def terminal_full(self):
        """nor does a terminal"""
        try:
            out, into = os.openpty()
        except OSError as error:        # a container without /dev/pts
            raise Skip(f"no terminals: {error.strerror}") from error
        size = self._fill(into)
        os.close(out)
        os.close(into)
        out, into = os.openpty()
        self._fill(into, size - 300)
        self._full("full-terminal", out, into)

    @staticmethod
    def _fill(into, size=1 << 30):
        """With so many bytes, or until no more go in; how many did."""
        os.set_blocking(into, False)
        n = idle = 0
        while n < size and idle < 10:
            try:
                n += os.write(into, b"xxxxxxx\n")
                idle = 0
            except BlockingIOError:     # the system passes on what is there
                idle += 1
                time.sleep(.02)
        os.set_blocking(into, True)
        return n

    def _full(self, worker, out, into):
        """With a stderr that is nearly full."""
        engine = self.engine()
        port = free_port()
        relay = subprocess.Popen(
            [RELAY, "--worker", worker, "--redis", self.stage.redis_url(),
             "--events", f"tcp://127.0.0.1:{engine.port}",
             "--replay", f"tcp://127.0.0.1:{engine.replay_port}",
             "--listen", f"127.0.0.1:{port}", "--memory", "32m",
             "--log-level", "debug"], stderr=into)
        os.close(into)
        try:
            wait_until("a snapshot", lambda: self.stage.redis.exists(
                f"kv-snap:{{{worker}}}"), PATIENCE)
            engine.send(stored([1]))
            wait_until("a block", lambda: "\nkv_relay_blocks 1\n" in page_of(
                port, "/metrics"), PATIENCE)
            lost = page_of(port, "/metrics").split(
                "\nkv_relay_log_dropped_total ")[1].split("\n")[0]
            assert int(lost) >= 5, lost
            said = b""
            deadline = time.monotonic() + PATIENCE
            while b"lines dropped" not in said:
                assert time.monotonic() < deadline, said
                if select.select([out], [], [], 1)[0]:
                    said += os.read(out, 65536)
            told = re.search(rb'\ntime=\S+ level=warn worker=\S+ '
                             rb'msg="lines dropped" n=(\d+)\r?\n', said)
            assert int(told.group(1)) >= int(lost), said
        finally:
            relay.kill()
            relay.wait()
            os.close(out)

    def closed(self):
        """what was closed at its start is no file or connection of its own"""
        engine = self.engine()
        port = free_port()
        relay = subprocess.Popen(
            ["sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh", RELAY, "--worker",
             "closed", "--redis", self.stage.redis_url(),
             "--events", f"tcp://127.0.0.1:{engine.port}",
             "--listen", f"127.0.0.1:{port}", "--memory", "32m"])
        try:
            wait_until("a snapshot", lambda: self.stage.redis.exists(
                "kv-snap:{closed}"), PATIENCE)
            assert [os.readlink(f"/proc/{relay.pid}/fd/{n}")
                    for n in range(3)] == ["/dev/null"] * 3
            assert "\nkv_relay_log_dropped_total 0\n" in page_of(
                port, "/metrics")
        finally:
            relay.kill()
            relay.wait()

    def order(self):
        """ready, whether the engine is there or not; then it is connected"""
        engine = self.engine()
        engine.close()
        relay = self.started(engine)
        assert "engine connected" not in relay.text()
        engine.open()
        relay.wait_for("complete")
        said = re.findall(r'msg="([^"]+)"', relay.text())
        steps = [said.index(msg) for msg in (
            "started", "redis connected", "lease taken", "ready", "snapshot",
            "engine connected", "in step", "complete")]
        assert steps == sorted(steps), said
        assert said.count("ready") == 1

    def pages(self):
        """/ready says what it waits for, /health that it is alive"""
        engine = self.engine()
        engine.close()
        away = f"rank 0 of the engine is not reached at {self._place(engine)}:"
        for _ in range(10):
            relay = self.relay(engine)
            relay.wait_for("ready")
            status, text = relay.http("/ready")
            if 'msg="snapshot"' not in relay.text():
                break                   # the answer was not too late
        assert status == 503, text
        assert re.match(rf"synchronizing: .*\n{re.escape(away)} ", text), text
        other = self.relay(engine, worker=relay.worker)
        other.wait_for("standby")
        assert other.http("/ready") == (
            503, "standby: another relay of this worker has the lease\n")
        relay.wait_for("snapshot")
        wait_until("it says why", lambda: relay.http("/ready") == (
            503, f"{away} connection refused, or no route to the host\n"),
            PATIENCE)
        for one in relay, other:
            assert one.http("/health") == (200, "ok\n")
        engine.open()
        relay.wait_ready()
        engine.close()
        wait_until("it is not", lambda: relay.http("/ready")[1].startswith(
            away), PATIENCE)

    @staticmethod
    def _place(engine):
        return f"tcp://127.0.0.1:{engine.port}"

    def _unreached(self, relay, rank, place, why):
        """Until the log says it of a rank, in one line."""
        start = f'msg="engine not reached" rank={rank} '
        lines = wait_until(
            f"rank {rank} is not reached",
            lambda: [line for line in relay.text().splitlines()
                     if start in line], PATIENCE)
        assert len(lines) == 1 and " level=warn " in lines[0], lines
        assert f'{start}endpoint="{place}" seconds=' in lines[0], lines
        assert f' why="{why}" remedy="start the engine' in lines[0], lines

    def not_reached(self):
        """of each rank that is not reached it is told where, and why"""
        engine, gone = self.engine(), self.engine()
        gone.close()
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            places = {
                "connection refused, or no route to the host":
                    self._place(gone),
                "there is no such socket, or nothing listens at it":
                    f"ipc://{self.stage.directory}/nobody",
                "the host's name has no address, or there is no route to it":
                    "tcp://[fe80::1]:5557",
                "no answer": f"tcp://127.0.0.1:{deaf.getsockname()[1]}"}
            relay = self.relay([engine], *(
                word for place in places.values()
                for word in ("--events", place)), replay=False)
            relay.wait_for("engine not reached", len(places))
            for rank, (why, place) in enumerate(places.items()):
                self._unreached(relay, rank, place, why)
                assert (f"rank {rank} of the engine is not reached at {place}:"
                        f" {why}\n") in relay.http("/ready")[1]
        assert "rank 4" not in relay.http("/ready")[1]
        assert relay.metric('engine_up{rank="4"}') == 1

    def not_allowed(self):
        """a socket that the relay's user must not write to is told of"""
        place = f"ipc://{self.stage.directory}/closed"
        with socket.socket(socket.AF_UNIX) as closed:
            closed.bind(place.removeprefix("ipc://"))
            closed.listen()
            os.chmod(place.removeprefix("ipc://"), 0)
            relay = self.relay([], "--events", place, before=(
                "setpriv", "--bounding-set",
                "-dac_override,-dac_read_search") * (os.geteuid() == 0))
            self._unreached(relay, 0, place, "the relay's user can't write to "
                            "the socket, or can't enter its folder")

    def not_polled(self):
        """nor is a TensorRT-LLM that is not there passed over"""
        engine = self.engine()
        engine.close()
        place = f"http://127.0.0.1:{engine.port}"
        relay = self.relay([], "--trtllm", place)
        self._unreached(relay, 0, place, "Connection refused")
        assert (f"rank 0 of the engine is not reached at {place}: Connection "
                "refused\n") in relay.http("/ready")[1]
        relay = self.relay([], "--trtllm",
                           f"http://u:sEcr3t@127.0.0.1:{engine.port}")
        self._unreached(relay, 0, "…", "Connection refused")
        assert "sEcr3t" not in relay.text() + relay.http("/ready")[1]

    def metrics(self):
        """the metrics of the README are those that there are"""
        relay = self.started(self.engine())
        names = set(re.findall(r"^# TYPE kv_relay_(\S+) ",
                               relay.http("/metrics")[1], re.M))
        text = (ROOT / "relay" / "README.md").read_text().split(
            "\n## Metrics\n")[1].split("\n## ")[0]
        table = "".join(line.split("|")[1] for line in text.splitlines()
                        if line.startswith("|"))
        assert len(names) > 30
        assert set(re.findall(r"`(\w+)(?:\{[\w,]+\})?`", table)) == names

    def no_publisher(self):
        """a port where something else listens is told of"""
        with Web() as web:
            place = f"tcp://127.0.0.1:{web.port}"
            relay = self.relay([], "--events", place)
            wait_until("it tries again", lambda: web.times > 5, PATIENCE)
            self._unreached(relay, 0, place,
                            "what answers there is no publisher by ZMQ")
        assert "engine disconnected" not in relay.text()
        assert "engine connected" not in relay.text()

    def each_change(self):
        """an engine that goes and comes is told of once each time"""
        engine = self.engine()
        relay = self.started(engine)
        for times in (1, 2):
            relay.wait_for("engine connected", times)
            engine.close()
            relay.wait_for("engine disconnected", times)
            with Web(engine.port) as web:
                wait_until("it tries again", lambda: web.times > 2, PATIENCE)
            engine.open()
        relay.wait_for("engine connected", 3)
        assert relay.text().count('msg="engine disconnected"') == 2

    def no_message(self):
        """frames that are no message are told of once"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1]))
        self.comes(relay, 1)
        for frames in ([b"", b"x"], [b"x"], [b"", bytes(7), b"x"]):
            engine.pub.send_multipart(frames)
        engine.send(stored([2], 1))
        self.comes(relay, 1, 2)
        name = 'skipped_total{what="refused",why="syntax"}'
        assert relay.metric(name) == 3
        self.is_complete(relay)
        lines = [line for line in relay.text().splitlines()
                 if 'msg="message refused"' in line]
        assert len(lines) == 1 and "frames=2" in lines[0], lines


if __name__ == "__main__":
    sys.exit(test_relay.main(Log, "relay-log"))
