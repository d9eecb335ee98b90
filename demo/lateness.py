"""How late a program was for what it had to do at a certain time.

The engine stand-ins and the replay keep time by deadlines.  On a machine that
has no processor free for them they wake up later, and what they measure is
the machine's doing.
"""

import asyncio
import contextlib

LATE_SECONDS = 0.010


class Deadlines:
    """The deadlines of one program on its event loop's clock."""

    def __init__(self):
        self.met = 0                    # by LATE_SECONDS or less
        self.missed = 0                 # by more

    async def wait(self, deadline, event=None):
        """Sleeps until a time of loop.time(), or until an event is set before:
        whether it was."""
        loop = asyncio.get_running_loop()
        if event is None or deadline <= loop.time():
            await asyncio.sleep(deadline - loop.time())
        else:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await event.wait()
                return True
        if loop.time() - deadline > LATE_SECONDS:
            self.missed += 1
        else:
            self.met += 1
        return False


def missed_share(counts):
    """The share of missed deadlines of [(met, missed)], the worst of all."""
    return max(missed / (met + missed) if met + missed else 0.0
               for met, missed in counts)
