"""Clocks that tests set: a process is started with one, and goes by it."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SHIM = Path(os.environ.get("KVR_BUILD") or ROOT / "build") / "clock.so"


class Clock:
    """The time of day of those that are started with it; monotonic time is
    everybody's."""

    def __init__(self, path):
        assert SHIM.is_file(), f"{SHIM} isn't there: build it first"
        self._path = path
        self.set(0)

    def prefix(self):
        """What a command has to begin with."""
        return ["env", f"LD_PRELOAD={SHIM}", f"KVR_CLOCK={self._path}"]

    def set(self, seconds):
        """Sets it: so many seconds off, at once and until the next time."""
        data = int(seconds).to_bytes(8, "little", signed=True)
        with open(self._path, "r+b" if self._path.exists() else "wb") as file:
            file.write(data)
