"""The checker finds every planted fault of masters, slaves and consumers: a checker that cannot fail proves nothing."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.crash.history import Acked, Epoch, History
from tests.records import encoded

A, B = "10.77.0.1", "10.77.0.2"


@dataclass
class World:
    """What really happened in two epochs, of A and then of B; a fault changes one thing of it."""

    history: History
    epochs: dict[int, Epoch]
    shown: list[list[bytes]]
    logs: dict[str, bytearray]

    def problems(self) -> list[str]:
        history = self.history
        return [
            *(problem for name, log in self.logs.items() for problem in history.not_in(log, name, history.acked)),
            *(problem for queue_id, bodies in enumerate(self.shown) for problem in history.show(queue_id, bodies)),
            *history.violations(self.epochs),
        ]

    def change(self, index: int, **changes: Any) -> None:
        """Another answer than was given."""
        acked = self.history.acked[index] = replace(self.history.acked[index], **changes)
        sent = self.history.ledger.sent[acked.body]
        sent.queue_id, sent.offset, sent.returned_ns = acked.queue_id, acked.offset, acked.returned_ns
        sent.invoked_ns = acked.invoked_ns

    def swap(self) -> None:
        """The second message lies in the log before the first one."""
        first, second = self.history.acked[:2]
        self.change(0, place=second.place)
        self.change(1, place=first.place)

    def cut(self, name: str, index: int) -> None:
        """A broker's log ends before a message."""
        del self.logs[name][self.history.acked[index].place :]

    def rot(self, name: str, index: int) -> None:
        self.logs[name][self.history.acked[index].place + 100] ^= 1


def honest() -> World:
    """Eight acknowledged messages in two queues, half by each master; one that was stored; one that never was."""
    history, log, now = History(), bytearray(), 0
    shown: list[list[bytes]] = [[], []]
    begins = [0, 0]
    for number in range(8):
        queue_id, broker, text = number % 2, A if number < 4 else B, f"message {number}"
        if number == 4:
            begins[1] = len(log)
        body, offset = text.encode(), len(shown[queue_id])
        raw = encoded(queue_id=queue_id, body=body, queue_offset=offset, physical_offset=len(log))
        history.take("sent", text, now)
        history.take("acked", text, queue_id, len(shown[queue_id]), len(log), broker, now + 1)
        history.take("read", text, queue_id, len(shown[queue_id]), now + 2)
        shown[queue_id].append(text.encode())
        log += raw
        now += 3
    history.take("sent", "perhaps", now)
    history.take("stored", "perhaps", 1, now + 1)
    shown[1].append(b"perhaps")
    history.take("sent", "never", now)
    epochs = {1: Epoch(1, begins[0], A), 2: Epoch(2, begins[1], B)}
    return World(history, epochs, shown, {"a": bytearray(log), "b": bytearray(log)})


def test_an_honest_history_breaks_nothing() -> None:
    assert honest().problems() == []


def test_a_message_that_was_stored_at_least_may_be_gone() -> None:
    world = honest()
    world.shown[1].pop()
    assert world.problems() == []


def test_an_epoch_that_nobody_saw_proves_nothing() -> None:
    world = honest()
    world.epochs[2] = Epoch(2, world.epochs[2].begin, "")
    assert world.problems() == []


FAULTS: dict[str, tuple[str, Callable[[World], object]]] = {
    "acknowledged without the slave": ("lost", lambda world: world.cut("b", 7)),
    "acknowledged before the master has it": ("lost", lambda world: world.cut("a", 7)),
    "the slave's log lacks a piece": (
        "lost",
        lambda world: world.logs["b"].__setitem__(slice(0, 300), bytes(300)),
    ),
    "the slave's record has rotted": ("lost", lambda world: world.rot("b", 2)),
    "a log is moved by a byte": ("lost", lambda world: world.logs["b"].insert(0, 0)),
    "a record of another message": ("lost", lambda world: world.change(5, place=0)),
    "the next master cut too much": ("lost", lambda world: world.shown[0].pop()),
    "a queue is empty": ("lost", lambda world: world.shown[1].clear()),
    "a queue begins anew": ("lost", lambda world: world.shown[0].__delitem__(slice(0, 2))),
    "a message is left out": ("lost", lambda world: world.shown[0].__delitem__(1)),
    "nobody read it": ("lost", lambda world: world.history.reads.pop(3)),
    "a group passed over some": ("lost", lambda world: world.history.reads.__delitem__(slice(2, 5))),
    "invented": ("phantom", lambda world: world.shown[0].append(b"nobody's")),
    "changed on the way": ("phantom", lambda world: world.shown[1].__setitem__(4, b"Perhaps")),
    "read and then cut": ("phantom", lambda world: world.history.take("read", "never", 0, 4, 90)),
    "read at another offset": ("phantom", lambda world: world.history.take("read", "message 0", 0, 1, 90)),
    "read from another queue": ("phantom", lambda world: world.history.take("read", "message 0", 1, 0, 90)),
    "read before it was sent": ("phantom", lambda world: world.history.take("read", "message 6", 0, 3, 1)),
    "in another queue": ("misplaced", lambda world: world.shown[0].append(world.shown[1].pop())),
    "stored twice by a repetition": ("doubled", lambda world: world.shown[1].append(b"perhaps")),
    "shown in two queues": ("doubled", lambda world: world.shown[0].append(b"message 1")),
    "one offset given twice": ("doubled", lambda world: world.change(6, offset=2)),
    "one place given twice": (
        "doubled",
        lambda world: world.change(7, place=world.history.acked[6].place),
    ),
    "the old master goes on": ("usurped", lambda world: world.change(6, broker=A)),
    "the next master begins too early": ("usurped", lambda world: world.change(3, broker=B)),
    "two masters of one epoch": ("usurped", lambda world: world.change(1, broker=B)),
    "an epoch that began before it did": (
        "usurped",
        lambda world: world.epochs.__setitem__(2, replace(world.epochs[2], begin=1)),
    ),
    "a queue in another order": ("disorder", lambda world: world.shown[0].reverse()),
    "the log in another order than time": ("disorder", lambda world: world.swap()),
    "an old master answers after the next one did": (
        "disorder",
        lambda world: world.change(3, invoked_ns=40, returned_ns=41),
    ),
}


def test_there_are_enough_planted_faults() -> None:
    assert len(FAULTS) >= 25


@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found(fault: str) -> None:
    kind, plant = FAULTS[fault]
    world = honest()
    plant(world)
    assert kind in {problem.split(":")[0] for problem in world.problems()}, fault


def test_an_answer_that_comes_is_one_of_the_talkers_lines() -> None:
    history = History()
    history.take("sent", "x", 5)
    history.take("acked", "x", 1, 0, 700, A, 9)
    assert history.acked == [Acked(b"x", 1, 0, 700, A, 5, 9)]
    assert history.ledger.acked == 1
