#!/usr/bin/env python3
"""kv-relay with several endpoints: whose blocks a rank's are."""

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
        """an endpoint by another name is the one that was at its place"""
        engine = self.engine(keep=1)
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

    def another_order(self):
        """endpoints in another order lose nothing, and no copies"""
        for named in True, False:
            first, second = engines = self.engine(), self.engine()

            def both(*events):
                """Of the blocks of each of them."""
                for rank, engine in enumerate(engines):
                    event = [e(rank) for e in events]
                    if named:
                        engine.send_rank(rank, *event)
                    else:
                        engine.send(*event)

            relay = self.started(engines)
            both(lambda n: stored([1 + n]))
            both(lambda n: stored([1 + n, 11 + n]))     # a second copy
            self._have(relay, r0=[1, 11], r1=[2, 12])
            self._left(relay)
            relay = self.started([second, first], worker=relay.worker)
            self._have(relay, **{"r0" if named else "r1": [1, 11],
                                 "r1" if named else "r0": [2, 12]})
            self.is_complete(relay)
            self._ends(relay)
            relay = self.started(engines, worker=relay.worker)
            both(lambda n: removed([1 + n]))
            both(lambda n: removed([11 + n]))
            self._have(relay, r0=[1], r1=[2])
            both(lambda n: removed([1 + n]))
            self._have(relay, r0=[], r1=[])
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
        relay = self.started(engines, "--memory", "9m", "--deregister", "off")
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

    # ----------------------------------------------- several at one endpoint

    def _several(self):
        """Two engines, of which the first gives two ranks, and a relay."""
        first, second = self.engine(), self.engine()
        relay = self.started([first, second])
        first.send_rank(2, stored([12]))
        first.send_rank(0, stored([10]))
        second.send_rank(1, stored([11]))
        self._have(relay, r0=[10], r1=[11], r2=[12])
        return first, second, relay

    def several_restart(self):
        """an endpoint that gives several ranks takes all of them along"""
        first, second, relay = self._several()
        self.is_complete(relay)
        first.close()
        relay.wait_for("engine disconnected")
        first.rise()
        first.send_rank(0, stored([20]))
        self._have(relay, r0=[20], r1=[11], r2=[])
        self.is_complete(relay)

    def several_restart_unseen(self):
        """so it does when the relay was away meanwhile"""
        first, second, relay = self._several()
        self._left(relay)
        first.close()
        first.rise()
        first.send_rank(0, stored([20]))
        relay = self.started([first, second], worker=relay.worker)
        self._have(relay, r0=[20], r1=[11], r2=[])
        self.is_complete(relay)

    def several_in_the_log(self):
        """a rank that came after the snapshot is read from the log, too"""
        for n in 1, 2:
            engines = [self.engine(keep=2) for _ in range(n)]
            relay = self.started(engines)
            engines[-1].send_rank(0, stored([1]))
            self._have(relay, r0=[1])
            self.snapshot_now(relay)
            engines[-1].send_rank(3, stored([5]))
            for i in range(3):
                engines[-1].send_rank(0, stored([2 + i]))
            self._have(relay, r0=range(1, 5), r3=[5])
            relay.kill()
            relay = self.started(engines, worker=relay.worker)
            relay.wait_for("in step", n)
            self._have(relay, r0=range(1, 5), r3=[5])
            self._lacks(relay, "replay doesn't reach back")

    # ------------------------------------------------- one at several of them

    def shared(self):
        """what two have said of one rank is not sure until both begin anew"""
        first, second = self.engine(), self.engine()
        relay = self.started([first, second])
        first.send_rank(0, stored([1]))
        second.send_rank(0, stored([2]))
        self._lacks(relay, "both say that they are rank 0")
        second.send_rank(0, CLEARED)
        second.send_rank(1, stored([3]))
        self._have(relay, r0=[], r1=[3])
        self.told(relay)
        self._lacks(relay, "both say that they are rank 0")
        second.close()
        relay.wait_for("engine disconnected")
        second.rise()
        second.send_rank(1, stored([4]))
        self._have(relay, r1=[4])
        self._lacks(relay, "another endpoint")
        first.close()
        relay.wait_for("engine disconnected", 2)
        first.rise()
        first.send_rank(0, stored([5]))
        self._have(relay, r0=[5], r1=[4])
        self.is_complete(relay)

    def shared_no_more(self):
        """a relay of one of them alone doesn't believe what it finds"""
        first, second = self.engine(), self.engine()
        relay = self.started([first, second])
        first.send_rank(0, stored([1]))
        second.send_rank(0, stored([2]))
        self._lacks(relay, "both say that they are rank 0")
        second.send_rank(0, removed([1]))
        self.comes(relay, 2)
        self._left(relay)
        relay = self.started(first, worker=relay.worker)
        self.comes(relay, 1)
        self.is_complete(relay)


if __name__ == "__main__":
    sys.exit(test_relay.main(Ranks, "relay-ranks"))
