#!/usr/bin/python3
"""Three routers of one fleet know one another's load; TAP."""

import random
import sys
import threading
import time

from routers import Group, Held, wait_until
from stage import PATIENCE, PROCESSES

CLIENTS = 24
SECONDS = 10                    # of samples
SAMPLES = 200                   # of a router's sum of a worker, at least
WITHIN = 0.2                    # seconds that news, and a machine, may take
FEW = 0.02                      # of the samples may be of a machine that is
                                # slower still

at = None                       # the group, set by main()


def routers_find_one_another():
    """routers with the same Redis find one another, and know their names"""
    at.meet()
    for router in at.routers:
        status = router.status()["sync"]
        assert status["on"] and status["routers"] == 3, status
        assert {peer["version"] for peer in status["peers"]} == {"0.1.0"}
        router.said(r"peer \"\w+\" of version 0\.1\.0 is heard", 2)


def held_requests_are_known_everywhere():
    """what one router has in flight is known at all of them, exactly"""
    a, b, c = at.routers
    held = at.hold(a, 5), at.hold(b, 3)
    at.exact()
    assert sum(own for own, _ in a.load().values()) == 5, a.load()
    assert sum(peers for _, peers in c.load().values()) == 8, c.load()
    assert sum(own for own, _ in c.load().values()) == 0, c.load()
    assert a.peers()["b"]["active_requests"] == 3, a.peers()
    at.release(*held)


def a_policy_knows_what_peers_have_sent():
    """least_loaded of one router goes by what the others have sent, too"""
    held = []
    for number in range(12):
        at.exact()
        held.append(at.hold(at.routers[number % 3], 1))
        counts = [engine.open for engine in at.engines]
        assert max(counts) - min(counts) <= 1, (number, counts)
    at.release(*held)


def sums_are_true_while_requests_come_and_go():
    """under load a sum differs by no more than what came and went of late"""
    for engine in at.engines:
        engine.mode = "timed"
    ends = time.monotonic() + SECONDS + PATIENCE
    enough = threading.Event()

    def client():
        while not enough.is_set():
            Held(random.choice(at.routers), 1).over()

    clients = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in clients:
        thread.start()
    samples, wrong, begun = [], [], time.monotonic()
    try:
        while time.monotonic() < ends and (
                len(samples) < SAMPLES
                or time.monotonic() < begun + SECONDS):
            for router in at.routers:
                samples += sample(router)
    finally:
        enough.set()
        for thread in clients:
            thread.join(PATIENCE)
    time.sleep(WITHIN)
    wrong = [one for one in samples if not true(*one)]
    print(f"# {len(samples)} samples, {len(wrong)} of them wrong: "
          f"{wrong[:3]}")
    assert len(samples) >= SAMPLES, len(samples)
    assert len(wrong) <= FEW * len(samples), wrong[:10]
    at.quiet()


def sample(router):
    """[(engine, from when, to when, what it had open then, the sum)] while
    all peers count."""
    begun = time.monotonic()
    opens = [engine.open for engine in at.engines]
    status = router.status()
    ended = time.monotonic()
    load = router.load(status)
    peers = status["sync"]["peers"]
    if (len(peers) < len(at.routers) - 1
            or any(peer["state"] != "fresh" for peer in peers)
            or not any(others for _, others in load.values())):
        return []
    return [(engine, begun, ended, had, sum(load[engine.name]))
            for engine, had in zip(at.engines, opens)]


def true(engine, begun, ended, had, told):
    """Whether what came and went then makes up for the difference."""
    moved = sum(begun - WITHIN <= when <= ended + WITHIN
                for when in engine.events)
    return abs(told - had) <= moved


def a_reload_loses_nothing():
    """a reload changes no sum, while the processes before have requests"""
    a, b, _ = at.routers
    held = [at.hold(a, 4), at.hold(b, 2)]
    a.reload()
    at.exact()
    held.append(at.hold(a, 2))
    at.exact()
    at.meet()
    at.release(*held)
    wait_until("the processes before are gone", lambda: len(
        a.children()) == PROCESSES, PATIENCE)
    held = at.hold(a, 1)
    at.exact()
    at.release(held)


def a_router_leaves():
    """a router that ends is gone for the others, and shares nothing"""
    a, b, c = at.routers
    c.stop_nginx()
    for router in (a, b):
        router.hears(*({"a", "b"} - {router.name}))
        router.said('peer "c" is gone: 2 routers share the load')
    at.start(c)
    at.meet()
    held = at.hold(c, 2)
    at.exact()
    at.release(held)


def shares_follow_the_traffic():
    """a router without requests has no share, and knows all the same"""
    a, b, c = at.routers
    for engine in at.engines:
        engine.mode = "ok"

    def settled():
        for router in (a, b):
            assert router.ask() == 200
        shares = {**a.peers(), **b.peers()}
        return (shares["c"]["share"] == 0 and shares["a"]["share"] > 0
                and shares["b"]["share"] > 0)

    wait_until("c has no share", settled, PATIENCE)
    held = at.hold(a, 2)
    at.exact(c)
    at.release(held)


def the_logs_are_quiet():
    """no log has an error, or a warning"""
    for router in at.routers:
        router.check_log()
        warned = [line for line in router.log().splitlines()
                  if "[warn]" in line]
        assert not warned, warned


def main():
    """Runs the tests on three routers."""
    global at
    with Group("abc") as at:
        return at.first.run([
            routers_find_one_another, held_requests_are_known_everywhere,
            a_policy_knows_what_peers_have_sent,
            sums_are_true_while_requests_come_and_go, a_reload_loses_nothing,
            a_router_leaves, shares_follow_the_traffic, the_logs_are_quiet])


if __name__ == "__main__":
    sys.exit(main())
