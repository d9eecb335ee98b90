#!/usr/bin/env python3
"""kv-relay with several endpoints: a rank is its endpoint's place."""

import signal
import sys

import test_relay
from processes import wait_until
from relay import CLEARED, removed, stored
from stage import PATIENCE


class Ranks(test_relay.Tests):
    """The same stage, other plays."""

    def _left(self, relay):
        """Until it has ended, and its snapshot has all of it."""
        self.snapshot_now(relay)
        self._ends(relay)

    @staticmethod
    def _ends(relay):
        """As when it is told to."""
        relay.signal(signal.SIGTERM)
        assert relay.ended() == 0

    def _have(self, relay, **ranks):
        """Until a router would see exactly these, by rank."""
        for rank, handles in ranks.items():
            self.comes(relay, *handles, rank=int(rank[1:]))

    # -------------------------------------------------- ranks that are gone

    def fewer(self):
        """the blocks of a rank that there is no more go with it"""
        engines = [self.engine() for _ in range(3)]
        relay = self.started(engines)
        for i, engine in enumerate(engines):
            engine.send(stored([100 + i]))
        self._have(relay, r0=[100], r1=[101], r2=[102])
        self._left(relay)
        engines.pop().close()
        for i, engine in enumerate(engines):
            engine.close()
            engine.rise()
            engine.send(stored([200 + i]))
        relay = self.started(engines, worker=relay.worker)
        self._have(relay, r0=[200], r1=[201], r2=[])
        self.is_complete(relay)

    def fewer_of_the_same(self):
        """nor stay those that a relay with fewer endpoints is not told of"""
        engines = [self.engine(), self.engine()]
        relay = self.started(engines)
        for i, engine in enumerate(engines):
            engine.send(stored([100 + i]))
        self._have(relay, r0=[100], r1=[101])
        self._left(relay)
        relay = self.started(engines[:1], worker=relay.worker)
        self._have(relay, r0=[100], r1=[])
        self.is_complete(relay)
        assert relay.metric("engine_restarts_total") == 0

    def more(self):
        """with one more, those that were there go on"""
        engines = [self.engine(keep=1), self.engine(keep=1)]
        relay = self.started(engines)
        for _ in range(2):
            for i, engine in enumerate(engines):
                engine.send(stored([100 + i]))
        self._have(relay, r0=[100], r1=[101])
        self._left(relay)
        engines.append(self.engine())
        engines[2].send(stored([102]))
        relay = self.started(engines, worker=relay.worker)
        self._have(relay, r0=[100], r1=[101], r2=[102])
        self.is_complete(relay)

    def another_name(self):
        """an endpoint by another name begins anew, and that is said"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1]))
        engine.send(stored([2], 1))
        self.comes(relay, 1, 2)
        self._left(relay)
        relay = self.started([], "--events", f"tcp://localhost:{engine.port}",
                             "--replay",
                             f"tcp://localhost:{engine.replay_port}",
                             worker=relay.worker)
        self.comes(relay, 1, 2)
        self.is_complete(relay)
        assert "another endpoint was at its place" in relay.text()

    def another_order(self):
        """endpoints in another order begin anew at their places"""
        first, second = engines = self.engine(), self.engine()
        relay = self.started(engines)
        for n, engine in enumerate(engines):
            engine.send(stored([1 + n]))
            engine.send(stored([1 + n, 11 + n]))        # a second copy
        self._have(relay, r0=[1, 11], r1=[2, 12])
        self._left(relay)
        relay = self.started([second, first], worker=relay.worker)
        self._have(relay, r0=[2, 12], r1=[1, 11])
        self.is_complete(relay)
        second.send(removed([2]))
        second.send(removed([12]))
        self._have(relay, r0=[2], r1=[1, 11])
        second.send(removed([2]))
        self._have(relay, r0=[], r1=[1, 11])
        self.is_complete(relay)

    def moved_up(self):
        """one that moves to the place of another is not that one's heir"""
        first, second, third = (self.engine(keep=2) for _ in range(3))
        relay = self.started([first, second])
        for i in range(4):
            first.send(stored([100 + i]))
        for i in range(9):
            second.send(stored([200 + i]))
        self._have(relay, r0=range(100, 104), r1=range(200, 209))
        self._left(relay)
        first.close()
        relay = self.started([second, third], worker=relay.worker)
        relay.wait_for("in step", 2)
        self._have(relay, r0=[207, 208], r1=[])
        self._lacks(relay, "replay doesn't reach back")

    # ---------------------------------------------- one rank is not the others

    def cleared(self):
        """a clear of one rank says nothing of the others"""
        engines = self.engine(), self.engine()
        relay = self.started(engines)
        engines[0].send_rank(0, stored([1]))
        engines[1].send_rank(1, stored([2]))
        self._have(relay, r0=[1], r1=[2])
        engines[1].send_rank(1, CLEARED)
        self._have(relay, r0=[1], r1=[])
        self.is_complete(relay)

    def rebuilt_slowly(self):
        """a rank that begins anew silences no other, however long it takes"""
        first, second = self.engine(), self.engine()
        relay = self.started([first, second])
        first.send(stored([1]))
        second.send(stored([2]))
        self._have(relay, r0=[1], r1=[2])
        epoch = self.view(relay.worker).epoch
        second.close()
        relay.wait_for("engine disconnected")
        second.rise()
        second.held = True
        second.send(stored([3]))
        relay.wait_for("engine restarted")
        first.send(stored([4], 1))
        self._have(relay, r0=[1, 4], r1=[3])
        view = self.view(relay.worker)
        assert view.epoch == epoch and not view.complete
        self._lacks(relay, "being asked for")
        assert not relay.text().count("replay doesn't answer")
        second.held = False
        self.is_complete(relay)
        self._have(relay, r0=[1, 4], r1=[3])

    def begun_empty(self):
        """a rank that begins anew with nothing is cleared at once"""
        first, second = self.engine(), self.engine()
        relay = self.started([first, second])
        first.send(stored([1]))
        second.send(stored([2]))
        self._have(relay, r0=[1], r1=[2])
        second.close()
        relay.wait_for("engine disconnected")
        second.rise()
        self._have(relay, r0=[1], r1=[])
        self.is_complete(relay)

    def rebuilt_slowly_alone(self):
        """nor is an engine of one rank silent until its replay is over"""
        engine = self.engine()
        relay = self.started(engine)
        engine.send(stored([1]))
        epoch = self.comes(relay, 1).epoch
        engine.close()
        relay.wait_for("engine disconnected")
        engine.rise()
        engine.held = True
        engine.send(stored([3]))
        view = self.comes(relay, 3)
        assert view.epoch > epoch and not view.complete
        self._lacks(relay, "being asked for")
        assert not relay.text().count("replay doesn't answer")
        engine.held = False
        self.is_complete(relay)

    # --------------------------------------------------- a mirror that is full

    def _full(self, engines):
        """A relay with less memory than they have blocks."""
        relay = self.started(engines, "--memory", "9m")
        for i in range(100):
            engines[0].send(stored(list(range(1 + i * 1000,
                                              1001 + i * 1000))))
        engines[1].send(stored([7]))
        self._lacks(relay, "--memory")
        wait_until("all of it", lambda: relay.metric("messages_total") == 101,
                   PATIENCE)
        return relay

    def full_until_clears(self):
        """what had no room is missing until each rank was cleared since"""
        engines = self.engine(), self.engine()
        relay = self._full(engines)
        engines[0].send(CLEARED)
        self.comes(relay)
        self._lacks(relay, "--memory")
        engines[1].send(stored([8]))
        engines[1].send(CLEARED)
        self._have(relay, r0=[], r1=[])
        self.is_complete(relay)
        assert relay.metric("mirror_forgotten") == 0

    def full_until_restarts(self):
        """or has begun anew, which the next relay knows as well"""
        engines = self.engine(), self.engine()
        relay = self._full(engines)
        self.snapshot_now(relay)
        relay.kill()
        relay = self.started(engines, "--memory", "64m", worker=relay.worker)
        relay.wait_for("in step", 2)
        self._lacks(relay, "--memory")
        for times, engine in enumerate(engines, 1):
            self._lacks(relay, "--memory")
            engine.close()
            relay.wait_for("engine disconnected", times)
            engine.rise()
            engine.send(stored([10 + times]))
            relay.wait_for("in step", 2 + times)
        self._have(relay, r0=[11], r1=[12])
        self.is_complete(relay)

    def full_of_one(self):
        """a rank that holds nothing needs no clear for that"""
        engines = self.engine(), self.engine()
        relay = self.started(engines, "--memory", "9m")
        for i in range(100):
            engines[0].send(stored(list(range(1 + i * 1000,
                                              1001 + i * 1000))))
        self._lacks(relay, "--memory")
        engines[0].send(CLEARED)
        self.comes(relay)
        self.is_complete(relay)

    # ------------------------------------------------- a rank that is another

    def refused(self):
        """a batch that names another rank is refused, counted and said"""
        first, second = self.engine(), self.engine()
        relay = self.started([first, second])
        first.send_rank(0, stored([1]))
        second.send_rank(1, stored([2]))
        self._have(relay, r0=[1], r1=[2])
        self.is_complete(relay)
        second.send_rank(0, removed([1]), stored([3]))
        self._lacks(relay, "events of the engine's rank 0 were refused: its "
                           "endpoint is that of rank 1")
        self._have(relay, r0=[1], r1=[2])
        assert relay.metric(
            'skipped_total{what="refused",why="rank"}') == 2
        status, text = relay.http("/ready")
        assert status == 503, text
        assert text.startswith(
            "rank 1 of the engine is refused: "
            f"tcp://127.0.0.1:{second.port} says that it is rank 0, not 1; "
            "name --events in the order of the engine's ranks"), text
        for _ in range(9):
            second.send_rank(0, stored([3]))
        wait_until("all of them", lambda: relay.metric("messages_total") == 12,
                   PATIENCE)
        assert relay.text().count('msg="rank refused"') == 1
        assert "expected=1 named=0 remedy=" in relay.text()
        second.send_rank(1, CLEARED, stored([4]))
        self._have(relay, r0=[1], r1=[4])
        self.is_complete(relay)
        relay.wait_ready()

    def first_rank(self):
        """with --first-rank a node's ranks are counted from there"""
        engines = self.engine(), self.engine()
        relay = self.started(engines, "--first-rank", "4")
        engines[0].send_rank(4, stored([1]))
        engines[1].send_rank(5, stored([2]))
        engines[1].send(stored([3]))            # it names none
        self._have(relay, r0=[1], r1=[2, 3])
        self.is_complete(relay)
        assert self.member(relay.worker)["ranks"] == "2"
        engines[0].send_rank(0, stored([9]))
        self._lacks(relay, "rank 0 were refused: its endpoint is that of "
                           "rank 4")
        self._left(relay)
        relay = self.started(engines, "--first-rank", "4",
                             worker=relay.worker)
        self._have(relay, r0=[1], r1=[2, 3])
        self._lacks(relay, "rank 0 were refused")
        engines[0].close()
        engines[0].rise()
        engines[0].send_rank(4, stored([7]))
        self._have(relay, r0=[7], r1=[2, 3])
        self.is_complete(relay)

    # ------------------------------------------- what an older relay has left

    def older(self):
        """a state of another version of the relay is not loaded"""
        engine = self.engine(keep=3)
        relay = self.started(engine)
        engine.send(stored([1]))
        self._have(relay, r0=[1])
        self.snapshot_now(relay)
        relay.kill()
        name = f"kv-snap:{{{relay.worker}}}"
        pointer = self.stage.redis.hgetall(name)
        key = f"{name}:{int(pointer[b'epoch'])}-{int(pointer[b'seq'])}:s0"
        state = self.stage.redis.get(key)
        assert state.startswith(b"kv-relay 2 "), state
        self.stage.redis.set(key, state.replace(b"kv-relay 2", b"kv-relay 1"))
        self.stage.redis.delete(f"kv-lease:{{{relay.worker}}}")
        relay = self.started(engine, worker=relay.worker)
        self._have(relay, r0=[1])
        self.is_complete(relay)
        assert ("snapshot not loaded\" why=\"its state is of another version "
                "of the relay" in relay.text()), relay.text()


if __name__ == "__main__":
    sys.exit(test_relay.main(Ranks, "relay-ranks"))
