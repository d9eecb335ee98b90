#!/usr/bin/python3
"""nginx's binary upgrade (USR2, WINCH, QUIT) under load: no request fails, and
the new nginx, whose zone is new, knows all again; TAP."""

import os
import random
import signal
import sys
import time

from stage import PATIENCE, SEED, Stage, runs, wait_until
from traffic import Cache, Engines, Fleet, Load, Loop, make_prompts


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
        self.before = None              # the first master


at = None                       # the Play, set by main()


def all_is_known():
    """before the upgrade the index is the caches' state"""
    at.stage.adopt()
    at.stage.wait_applied(at.fleet.cursors())
    at.stage.check_index(at.fleet.model())


def a_new_nginx_starts_under_load():
    """USR2 starts a second nginx beside the first one, under load"""
    at.fleet.start()
    at.load.start()
    wait_until("streams are open", lambda: at.load.open > 3, PATIENCE)
    at.before = at.stage.upgrade()
    assert runs(at.before), "the old one has ended"


def the_old_one_ends():
    """WINCH and QUIT end the old one when its requests have ended"""
    wait_until("streams are open", lambda: at.load.open > 3, PATIENCE)
    begun = time.monotonic()
    os.kill(at.before, signal.SIGWINCH)
    os.kill(at.before, signal.SIGQUIT)
    wait_until("the old master is gone", lambda: not runs(at.before), PATIENCE)
    print(f"# {time.monotonic() - begun:.1f} s")
    assert at.stage.master() == at.stage.masters[-1]


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
        return stage.run([
            all_is_known,
            a_new_nginx_starts_under_load,
            the_old_one_ends,
            no_request_fails,
            the_new_zone_knows_all,
            no_load_is_left,
            nothing_is_wrong_in_the_log])


if __name__ == "__main__":
    sys.exit(main())
