"""How busy the machine is: how late a thread wakes that has little to do."""

import threading
import time

NAP = 0.02                      # seconds


class Load:
    """Measures all the time, from start() to stop()."""

    def __init__(self):
        self._naps = []                 # (when, how many seconds too late)
        self._going = False
        self._thread = None

    def start(self):
        """Measures from now on."""
        self._going = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self):
        """Measures no more."""
        self._going = False
        self._thread.join()

    def since(self, when):
        """In words, since a time.monotonic()."""
        late = sorted(one for at, one in list(self._naps) if at >= when)
        if not late:
            return "not measured"
        return (f"a thread that sleeps {NAP * 1000:.0f} ms is late by "
                f"{1000 * late[len(late) // 2]:.0f} ms at p50, "
                f"{1000 * late[len(late) * 99 // 100]:.0f} ms at p99, "
                f"{1000 * late[-1]:.0f} ms at most")

    def _run(self):
        while self._going:
            began = time.monotonic()
            time.sleep(NAP)
            self._naps.append((began, time.monotonic() - began - NAP))
