"""Faults that belong together: trouble between the master and other members, the death of the master, and what follows.

    trouble     pieces of the log reach one of the others, or all of them, late or not at all; one of them starts again,
                is slow or pauses
    death       a little later, or when a member joins or leaves those in sync: the master dies, loses its power, hangs,
                or is asked to end; mostly it stays away, so that another member leads
    sequel      sometimes, at the next election: the successor dies as well, or etcd loses its data

So the master has messages, changes and readers whose fate depends on what the others have. Faults drawn one by one
meet such a state rarely.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.simulation.cluster import Cluster
from tests.simulation.etcd import Moment
from tests.simulation.world import Host

if TYPE_CHECKING:
    from tests.simulation.faults import Faults

_MOST_WAIT_S: Final = 6.0  # from the trouble to the death
_STAYS_AWAY: Final = 0.8


class Crises:
    """Begins crises.

    Attributes:
        dead_successors: how many members died right after their election.
    """

    def __init__(self, cluster: Cluster, faults: Faults) -> None:
        self._cluster = cluster
        self._faults = faults
        self._rng = cluster.world.scheduler.rng
        self.dead_successors = 0

    def begin(self) -> None:
        """Begin a crisis, if there is a master."""
        faults, rng = self._faults, self._rng
        master = self._cluster.serving_master
        if master is None:
            return
        others = [host for number, host in self._cluster.members.items() if number != master]
        if others:
            one = rng.choice(others)
            self._link(self._cluster.members[master], others if rng.random() < 0.4 else [one])
            comes_again = rng.random() < 0.6 and self._member(one)
        else:
            comes_again = False
        if rng.random() < (0.3 if comes_again else 0.7):
            faults.after(rng.random() * _MOST_WAIT_S, self._death)
        else:
            moment = Moment.JOINED if comes_again or rng.random() < 0.5 else Moment.LEFT
            faults.at(moment, lambda _: self._death())

    def kill_twice(self) -> None:
        """Kill the master, and its successor right after its election."""
        master = self._cluster.serving_master
        if master is not None:
            self._faults.down(self._cluster.members[master], power=False, stays_down=_STAYS_AWAY)
            self._faults.at(Moment.ELECTED, self._kill)

    def _kill(self, member: int) -> None:
        self.dead_successors += 1
        self._faults.down(self._cluster.members[member], power=False, stays_down=_STAYS_AWAY)

    def _link(self, master: Host, others: list[Host]) -> None:
        """Let what the master sends reach the others late, or not at all."""
        rng = self._rng
        slow_s, cut_s = rng.choice((0.0, 0.1, 0.5, 1.0, 2.0, 2.0)), rng.uniform(0.5, 10.0)
        for other in others:
            if slow_s:
                self._faults.slow(master, other, slow_s)
            else:
                self._faults.cut(master, other, both=rng.random() < 0.5, seconds=cut_s)

    def _member(self, host: Host) -> bool:
        """Let a member start again, be slow, or pause. Returns whether it starts again."""
        choice = self._rng.random()
        if choice < 0.6:
            host.kill(power=choice < 0.2)
        elif choice < 0.8:
            self._faults.slow_disk(host)
        else:
            self._faults.pause(host)
        return choice < 0.6

    def _death(self) -> None:
        """Let the master go, as far as others can see."""
        master = self._cluster.serving_master
        if master is None:
            return
        host, choice = self._cluster.members[master], self._rng.random()
        if choice < 0.8:
            self._faults.down(host, power=choice < 0.5, stays_down=_STAYS_AWAY)
        elif choice < 0.9:
            self._faults.pause(host)
        elif host.process is not None:
            host.process.stop()
        sequel = self._rng.random()
        if sequel < 0.2:
            self._faults.at(Moment.ELECTED, self._kill)
        elif sequel < 0.4:
            self._faults.at(Moment.ELECTED, lambda _: self._faults.lose_etcd())
