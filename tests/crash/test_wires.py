"""Wires between network namespaces, and what they do to packets: seen by sockets on both ends."""

import socket
import time
from collections.abc import Iterator

import pytest

from tests.crash.not_here import skipped_without
from tests.crash.wires import CUT, Machine, Trouble, Wires, demand

PORT = 4000
LIMIT_S = 20.0
END = b"end"


@pytest.fixture
def wires() -> Iterator[Wires]:
    with skipped_without("a network of its own"):
        demand()
    with Wires(seed=5) as wires:
        yield wires


def box(machine: Machine) -> socket.socket:
    """Where packets for a machine come."""
    with machine.inside():
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((machine.address, PORT))
    made.settimeout(LIMIT_S)
    return made


def until_end(receiver: socket.socket) -> list[bytes]:
    """What comes before END."""
    return list(iter(lambda: receiver.recv(2000), END))


def test_machines_have_a_network_of_their_own(wires: Wires) -> None:
    one, other = wires.machine(), wires.machine()
    with one.inside(), pytest.raises(ConnectionRefusedError):
        socket.create_connection((other.address, PORT), LIMIT_S)
    with box(one) as sender, box(other) as receiver:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outside:
            outside.sendto(b"from elsewhere", (other.address, PORT))
        sender.sendto(b"hello", (other.address, PORT))
        sender.sendto(END, (other.address, PORT))
        assert until_end(receiver) == [b"hello"]


def test_a_wire_that_is_cut_one_way_carries_the_other_until_it_is_healed(wires: Wires) -> None:
    one, other, third = wires.machine(), wires.machine(), wires.machine()
    with box(one) as here, box(other) as there, box(third) as beside:
        wires.trouble(one, other, CUT)
        here.sendto(b"out", (other.address, PORT))
        there.sendto(b"back", (one.address, PORT))
        assert here.recv(100) == b"back"
        here.sendto(b"whole", (third.address, PORT))
        assert beside.recv(100) == b"whole"  # So what was sent before that has had its turn.
        wires.heal()
        here.sendto(END, (other.address, PORT))
        assert until_end(there) == []


def test_a_lossy_wire_loses_its_share(wires: Wires) -> None:
    one, other = wires.machine(), wires.machine()
    with box(one) as sender, box(other) as receiver:
        wires.trouble(one, other, Trouble(lost=0.3))
        # The kernel may carry packets late, so none may be healed before it is treated.
        for packet in [b"%d" % number for number in range(200)] + [END] * 20:
            sender.sendto(packet, (other.address, PORT))
        arrived = len(until_end(receiver))
        assert 110 <= arrived <= 170


def test_a_late_wire_keeps_the_order_and_a_jittery_one_does_not(wires: Wires) -> None:
    one, other = wires.machine(), wires.machine()
    with box(one) as sender, box(other) as receiver:
        orders = []
        for trouble in (Trouble(delay_s=0.1), Trouble(delay_s=0.1, jitter_s=0.2)):
            wires.trouble(one, other, trouble)
            began = time.monotonic()
            for number in range(30):
                sender.sendto(b"%d" % number, (other.address, PORT))
            orders.append([int(receiver.recv(100)) for _ in range(30)])
            assert time.monotonic() - began >= 0.1
        assert orders[0] == list(range(30))
        assert sorted(orders[1]) == list(range(30)) != orders[1]


def test_a_slow_wire_takes_its_time_and_loses_what_waits_for_too_long(wires: Wires) -> None:
    one, other = wires.machine(), wires.machine()
    with box(one) as sender, box(other) as receiver:
        wires.trouble(one, other, Trouble(rate=10_000))
        began = time.monotonic()
        for _ in range(100):
            sender.sendto(bytes(972), (other.address, PORT))  # 1,000 with its heads
        for _ in range(10):
            receiver.recv(2000)
        assert time.monotonic() - began >= 0.8
        receiver.settimeout(0.5)
        with pytest.raises(TimeoutError):
            for _ in range(80):
                receiver.recv(2000)
