"""dnsmasq, with names that a test changes."""

import os
import signal
import socket

from names import Names
from stage import PATIENCE, Process, free_port, wait_until

from processes import DemoError

FEW = 28                        # addresses that a UDP answer has room for
QUERY = (b"\0\1" b"\1\0" b"\0\1\0\0\0\0\0\0"     # of "x.fleet", A
         b"\1x\5fleet\0" b"\0\1\0\1")


class Dns:
    """Names of .fleet are dnsmasq's own, with the addresses set() gives them.
    Those of .beyond are asked of a server behind, `beyond`, a Names."""

    def __init__(self, directory):
        self.port = free_port()
        self.beyond = Names({})
        self._directory = directory
        self._hosts = directory / "hosts"
        self._has = {}
        self._server = None

    def __enter__(self):
        self.beyond.__enter__()
        self.set()
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        self.beyond.__exit__()

    def start(self):
        """Starts dnsmasq, and waits for it.  It ends if a child of the one
        before has the port for a moment."""
        wait_until("dnsmasq answers", self._answers, PATIENCE)

    def _spawn(self):
        self._server = Process("dnsmasq", [
            "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null",
            "--pid-file=", "--no-resolv", "--no-hosts", "--cache-size=0",
            "--local-ttl=1", "--listen-address=127.0.0.1",
            "--bind-interfaces", f"--port={self.port}", "--local=/fleet/",
            f"--server=/beyond/127.0.0.1#{self.beyond.port}",
            f"--addn-hosts={self._hosts}",
            *(["--user=root"] if os.geteuid() == 0 else [])],
            self._directory)

    def _answers(self):
        try:
            if self._server is None:
                self._spawn()
            self._server.check_alive()
        except DemoError:
            self.stop()
            return None
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(1)
            try:
                sock.sendto(QUERY, ("127.0.0.1", self.port))
                return sock.recv(512)
            except OSError:
                return None

    def stop(self):
        """Ends it: nobody answers any more."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def set(self, **names):
        """These names of .fleet have these addresses from now on, and no
        name any more without one."""
        many = any(len(addresses) > FEW for addresses in self._has.values())
        self._has.update(names)
        self._hosts.write_text("".join(
            f"{address} {name}.fleet\n" for name, addresses
            in self._has.items() for address in addresses))
        if many:
            self.stop()         # a TCP connection has a process, and a copy
            self.start()
        elif self._server is not None:
            self._server.signal(signal.SIGHUP)
