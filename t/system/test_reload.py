#!/usr/bin/python3
"""`nginx -s reload` under load: nothing fails, nothing is forgotten; TAP."""

import random
import sys

from stage import BLOCK_SIZE, PATIENCE, PROCESSES, SEED, Stage, wait_until
from traffic import Cache, Engines, Fleet, Load, Loop, Watch, make_prompts

RELOADS = 5
FIXED = 6                       # prompts that stay cached throughout


class Play:
    """What all tests look at."""

    def __init__(self, stage, loop):
        rng = random.Random(SEED)
        self.stage, self.rng = stage, rng
        self.prompts = make_prompts(rng, FIXED, 1, 40) \
            + make_prompts(rng, 4, 4, 40)
        self.engines = Engines(loop, ("w1", "w2", "w3", "w4"))
        stage.start_redis()
        stage.start_nginx(self.engines.addresses)
        self.fleet = Fleet(loop, stage.redis_url(), [
            Cache("w1", rng, self.prompts, secret=1, fixed=FIXED),
            Cache("w2", rng, self.prompts, secret=1, ranks=2, fixed=FIXED),
            Cache("w3", rng, self.prompts, secret=3, fixed=FIXED),
            Cache("w4", rng, self.prompts, secret=4)])
        self.fleet.drain()
        self.watch = Watch(stage, self.fleet, random.Random(SEED + 1))
        self.load = Load(loop, stage, self.prompts, random.Random(SEED + 2))
        self.leases = []


at = None                       # the Play, set by main()


def the_fixed_prompts_are_known():
    """before the first reload all workers' prompts are known"""
    at.stage.wait_applied(at.fleet.cursors())
    at.stage.check_index(at.fleet.model())
    scores = at.stage.query(at.prompts[0])
    assert scores == {(name, 0): (40, 40, 40)
                      for name in ("w1", "w2", "w3")}, scores


def reloads_take_place_under_load():
    """each reload brings new processes, streams of the old ones go on"""
    at.leases.append(at.stage.wait_lease())
    at.fleet.start()
    at.load.start()
    at.watch.start()
    for _ in range(RELOADS):
        wait_until("streams are open", lambda: at.load.open > 3, PATIENCE)
        at.leases.append(new_lease())
    assert len(at.leases) == RELOADS + 1


def new_lease():
    """Not a test: a reload, and the lease of one of the new processes."""
    before = at.stage.children()
    at.stage.reload()
    return at.stage.wait_lease(at.leases[-1]["token"], but=before)


def queries_are_right_all_the_time():
    """no query said more than was cached, none missed what stays cached"""
    at.watch.stop(50)
    assert at.watch.lost == 0, f"{at.watch.lost} queries failed"
    torn = at.stage.status()["index"]["lookups_torn"]
    print(f"# {at.watch.asked} queries, {at.watch.less} met a writer at "
          f"work, {torn} torn lookups, {at.watch.longest:.3f} s at most")
    assert at.watch.less <= torn, (at.watch.less, torn)


def no_request_fails():
    """no request failed, streams in progress included"""
    wait_until("all engines are asked",
               lambda: all(at.engines.served.values()), PATIENCE)
    at.load.stop(done=100, streamed=10)
    print(f"# {at.load.done} requests, {at.load.streamed} of them streams")
    assert not at.load.failures, at.load.failures[:5]


def the_lease_moves_to_the_new_processes():
    """with each reload a process of the new generation takes the lease"""
    tokens = [lease["token"] for lease in at.leases]
    assert tokens == sorted(set(tokens)), at.leases
    assert len({lease["pid"] for lease in at.leases}) == len(at.leases)
    assert at.leases[-1]["pid"] in at.stage.children()


def no_event_is_lost():
    """the index is the caches' state, handle for handle, and EXACT"""
    at.fleet.stop()
    at.stage.wait_applied(at.fleet.cursors())
    model = at.fleet.model()
    print(f"# {at.fleet.blocks()} blocks stored, {model.count()} held")
    at.stage.check_index(model)
    for name in at.fleet.caches:
        worker = at.stage.wait_confidence(name, "EXACT")
        assert worker["reason"] == "none", worker
        assert not worker["refused"] and not worker["filtered"], worker


def queries_answer_what_is_held():
    """a query for each prompt answers the caches' state"""
    model = at.fleet.model()
    blocks = at.fleet.caches["w1"].blocks
    for number, prompt in enumerate(at.prompts):
        scores = at.stage.query(prompt)
        assert scores == model.scores(blocks[number]), (number, scores)


def no_load_is_left():
    """every load counter is 0 after the load"""
    at.stage.check_idle()


def the_old_processes_are_gone():
    """the processes of all former generations have ended"""
    wait_until("only the last ones are left",
               lambda: len(at.stage.children()) == PROCESSES, PATIENCE)


def other_parameters_are_refused():
    """a reload with other parameters than the zone's is refused"""
    zone = f"block_size={BLOCK_SIZE}"
    for why, new in (("block_size", "block_size=32"),
                     ("max_workers", f"{zone} max_workers=16"),
                     ("model", f"{zone} served=another"),
                     ("eagle=off, not on", f"{zone} eagle=on")):
        at.stage.refused_reload(f"it was made with {why}", zone, new)
        the_zone_is_as_it_was()


def a_damaged_zone_is_refused():
    """a reload that finds the zone's header damaged is refused, not healed"""
    for offset, why in ((0, "holds no kv-router zone"),
                        (8, "the zone has layout"),
                        (16, "header is damaged")):
        with at.stage.damaged(offset, b"\x5a"):
            at.stage.refused_reload(why)
        the_zone_is_as_it_was()


def the_zone_is_as_it_was():
    """Not a test: nothing was reset, and events still come."""
    queries_answer_what_is_held()
    assert at.stage.wait_lease(at.leases[-1]["token"] - 1), at.leases
    at.fleet.publish("w4")
    at.fleet.drain()
    at.stage.wait_applied(at.fleet.cursors())
    at.stage.check_index(at.fleet.model())


def a_good_reload_still_works():
    """after all refusals a reload takes place, with all that is held"""
    at.leases.append(new_lease())
    the_old_processes_are_gone()
    the_zone_is_as_it_was()


def nothing_is_wrong_in_the_log():
    """the error log has no error and no alert but the refusals"""
    at.stage.check_log(r"\[emerg\].*kv_router_zone \"main\" can't be used")


def main():
    global at
    with Stage("reload") as stage, Loop() as loop:
        at = Play(stage, loop)
        return stage.run([
            the_fixed_prompts_are_known,
            reloads_take_place_under_load,
            queries_are_right_all_the_time,
            no_request_fails,
            the_lease_moves_to_the_new_processes,
            no_event_is_lost,
            queries_answer_what_is_held,
            no_load_is_left,
            the_old_processes_are_gone,
            other_parameters_are_refused,
            a_damaged_zone_is_refused,
            a_good_reload_still_works,
            nothing_is_wrong_in_the_log])


if __name__ == "__main__":
    sys.exit(main())
