#!/usr/bin/python3
"""nginx's binary upgrade (USR2, WINCH, QUIT) under load: no request fails, and
the new nginx, whose zone is new, knows all again; TAP."""

import os
import random
import signal
import subprocess
import sys
import time

from stage import PATIENCE, PROCESSES, SEED, Stage, wait_until
from traffic import Cache, Engines, Fleet, Load, Loop, make_prompts

# nginx takes USR2 for a mistake while its first parent lives, here the shell,
# and executes the path that it was started by.
START = ('"$(command -v nginx)" "$@" & '
         'while [ ! -s nginx.pid ]; do sleep 0.05; done')


class Play:
    """What all tests look at."""

    def __init__(self, stage, loop):
        rng = random.Random(SEED)
        self.stage = stage
        self.prompts = make_prompts(rng, 4, 1, 40) \
            + make_prompts(rng, 4, 4, 40)
        self.engines = Engines(loop, ("w1", "w2", "w3", "w4"))
        stage.start_redis()
        stage.start_nginx(self.engines.addresses)
        self.fleet = Fleet(loop, stage.redis_url(), [
            Cache("w1", rng, self.prompts, secret=1),
            Cache("w2", rng, self.prompts, secret=1, ranks=2),
            Cache("w3", rng, self.prompts, secret=3),
            Cache("w4", rng, self.prompts, secret=4)])
        self.fleet.drain()
        self.load = Load(loop, stage, self.prompts, random.Random(SEED + 1))
        self.masters = []

    def adopt(self):
        """Starts nginx anew as a process that has lost its first parent."""
        self.stage.stop_nginx()
        wait_until("the pid file is gone", lambda: not (
            self.stage.directory / "nginx.pid").exists(), PATIENCE)
        subprocess.run(
            ["sh", "-c", START, "sh", "-p", f"{self.stage.directory}/", "-c",
             "nginx.conf", "-e", self.stage.logs[-1].name],
            cwd=self.stage.directory, check=True, timeout=PATIENCE,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        self.masters.append(self.stage.master())
        wait_until("nginx answers", self.stage.status, PATIENCE)

    def end(self):
        """Ends the processes that no Process knows of."""
        for pid in self.masters:
            if runs(pid):
                os.kill(pid, signal.SIGTERM)
                wait_until(f"{pid} ends", lambda pid=pid: not runs(pid),
                           PATIENCE)


at = None                       # the Play, set by main()


def runs(pid):
    """Is the process there, and no zombie?"""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def all_is_known():
    """before the upgrade the index is the caches' state"""
    at.adopt()
    at.stage.wait_applied(at.fleet.cursors())
    at.stage.check_index(at.fleet.model())


def a_new_nginx_starts_under_load():
    """USR2 starts a second nginx beside the first one, under load"""
    at.fleet.start()
    at.load.start()
    wait_until("streams are open", lambda: at.load.open > 3, PATIENCE)
    os.kill(at.masters[0], signal.SIGUSR2)
    wait_until("another master", lambda: at.stage.master() != at.masters[0],
               PATIENCE)
    at.masters.append(at.stage.master())
    wait_until("its processes", lambda: len(at.stage.children()) == PROCESSES,
               PATIENCE)
    assert runs(at.masters[0]), "the old one has ended"


def the_old_one_ends():
    """WINCH and QUIT end the old one when its requests have ended"""
    wait_until("streams are open", lambda: at.load.open > 3, PATIENCE)
    begun = time.monotonic()
    os.kill(at.masters[0], signal.SIGWINCH)
    os.kill(at.masters[0], signal.SIGQUIT)
    wait_until("the old master is gone", lambda: not runs(at.masters[0]),
               PATIENCE)
    print(f"# {time.monotonic() - begun:.1f} s")
    assert at.stage.master() == at.masters[1]


def no_request_fails():
    """no request failed, and no stream was cut"""
    at.load.stop(done=100, streamed=10)
    print(f"# {at.load.done} requests, {at.load.streamed} of them streams")
    assert not at.load.failures, at.load.failures[:5]


def the_new_zone_knows_all():
    """the new zone has the caches' state, handle for handle, and EXACT"""
    at.fleet.stop()
    at.stage.wait_applied(at.fleet.cursors())
    at.stage.check_index(at.fleet.model())
    for name in at.fleet.caches:
        assert at.stage.wait_confidence(name, "EXACT")["reason"] == "none"


def no_load_is_left():
    """every load counter is 0 after the load"""
    at.stage.check_idle()


def nothing_is_wrong_in_the_log():
    """the error log has no error and no alert"""
    at.stage.check_log()


def main():
    global at
    with Stage("upgrade") as stage, Loop() as loop:
        at = Play(stage, loop)
        try:
            return stage.run([
                all_is_known,
                a_new_nginx_starts_under_load,
                the_old_one_ends,
                no_request_fails,
                the_new_zone_knows_all,
                no_load_is_left,
                nothing_is_wrong_in_the_log])
        finally:
            at.end()


if __name__ == "__main__":
    sys.exit(main())
