"""Machines on this machine, with wires between them that fail as wires do.

    with Wires(seed) as wires:
        broker, client = wires.machine(), wires.machine()      # 10.77.0.1, 10.77.0.2
        with broker.inside():
            ...                                                 # processes and sockets made here are that machine's
        wires.trouble(broker, client, Trouble(lost=0.2))        # one way, from the first to the second

Each machine is a network namespace of Linux, so it has addresses, ports and a TCP of its own. Its only way out is a TUN
device, whose packets come to a thread of this process: that is the wire, and does to each packet what is asked for.
TCP above it is the kernel's: it repeats what is lost, gives up, and leaves connections that only one end believes in.
Nothing of it is left when the process ends, however it does. Machines reach nobody else.

    lost        the share of packets that never arrive; 1.0 cuts the wire, and nobody is told
    delay_s     how much later they arrive, in order; jitter_s makes some overtake others
    rate        bytes a second that the wire carries; what waits for longer than a second is lost

Source: tuntap.rst and network_namespaces(7) of Linux. It takes root; the kernel's own netem is not everywhere.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Self

from tests.crash.not_here import NotHere

SUBNET: Final = "10.77.0"
_DEVICE: Final = "/dev/net/tun"
_NEW_NET: Final = 0x40000000  # CLONE_NEWNET
_SET_IFF: Final = 0x400454CA  # TUNSETIFF, _IOW('T', 202, int)
_TUN_NO_PI: Final = 0x1001  # IFF_TUN | IFF_NO_PI
_MTU: Final = 16_000  # large, so that they are few
_LONGEST_QUEUE_S: Final = 1.0
_OWN_NET: Final = "/proc/thread-self/ns/net"
_AT_ONCE: Final = 64  # packets of one machine, before the others have their turn


@dataclass(frozen=True, slots=True)
class Trouble:
    """What one direction of a wire does to packets."""

    lost: float = 0.0
    delay_s: float = 0.0
    jitter_s: float = 0.0
    rate: float | None = None


CUT: Final = Trouble(lost=1.0)


def demand() -> None:
    """Raises: NotHere, with what is missing."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise NotHere("it takes root on Linux to make network namespaces")
    if not os.path.exists(_DEVICE):
        raise NotHere(f"this kernel has no {_DEVICE}")
    if shutil.which("ip") is None:
        raise NotHere("there is no ip (Debian: apt install iproute2)")
    with ExitStack() as stack:
        try:
            stack.enter_context(_in_a_new_net())
        except OSError as error:
            raise NotHere(f"network namespaces cannot be made: {error.strerror}") from error


class Machine:
    """One of them; `address` is where the others reach it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.address = f"{SUBNET}.{number}"
        with _in_a_new_net():
            self._net = os.open(_OWN_NET, os.O_RDONLY)
            self.packets = _tun()
            for words in (
                "link set lo up",
                f"addr add {self.address}/24 dev wire",
                f"link set wire mtu {_MTU} up",
            ):
                subprocess.run(["ip", *words.split()], check=True, capture_output=True)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What this thread makes meanwhile, processes and sockets, is on that machine. Do not await in here, or only
        in here."""
        before = os.open(_OWN_NET, os.O_RDONLY)
        try:
            _enter(self._net)
            yield
        finally:
            _enter(before)
            os.close(before)

    def close(self) -> None:
        os.close(self.packets)
        os.close(self._net)


class Wires:
    """The machines and what is between them, while its context is entered. Raises on entering: NotHere."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._machines: dict[int, Machine] = {}
        self._troubles: dict[tuple[int, int], Trouble] = {}
        self._free_at: dict[tuple[int, int], float] = {}  # when a slow wire has carried what it got
        self._late: list[tuple[float, int, int, bytes]] = []  # due, a number, the receiver, a packet
        self._count = 0
        self._ended = False
        self._wake, self._woken = os.pipe()
        self._thread = threading.Thread(target=self._carry, name="wires", daemon=True)

    def __enter__(self) -> Self:
        demand()
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended = True
        self._nudge()
        self._thread.join()
        for machine in self._machines.values():
            machine.close()
        os.close(self._wake)
        os.close(self._woken)

    def machine(self) -> Machine:
        """One more, that all others reach."""
        machine = Machine(len(self._machines) + 1)
        self._machines = self._machines | {machine.number: machine}
        self._nudge()
        return machine

    def trouble(self, sender: Machine, receiver: Machine, trouble: Trouble) -> None:
        """From now on packets of one to the other are treated so."""
        self._troubles = self._troubles | {(sender.number, receiver.number): trouble}

    def between(self, one: Machine, other: Machine, trouble: Trouble) -> None:
        """Both ways."""
        self.trouble(one, other, trouble)
        self.trouble(other, one, trouble)

    def heal(self) -> None:
        """All wires are whole again."""
        self._troubles = {}

    # The thread -----------------------------------------------------------------------------------------------------

    def _nudge(self) -> None:
        os.write(self._woken, b".")

    def _carry(self) -> None:
        while not self._ended:
            readers = {machine.packets: machine for machine in self._machines.values()}
            due = self._late[0][0] - time.monotonic() if self._late else None
            ready, _, _ = select.select([*readers, self._wake], [], [], None if due is None else max(due, 0.0))
            for fd in ready:
                if fd == self._wake:
                    os.read(fd, 64)
                else:
                    self._take(readers[fd])
            self._deliver_late()

    def _take(self, sender: Machine) -> None:
        machines = self._machines
        for _ in range(_AT_ONCE):
            try:
                packet = os.read(sender.packets, 1 << 16)
            except BlockingIOError:
                return
            if packet[0] >> 4 == 4 and (receiver := machines.get(packet[19])) is not None:
                trouble = self._troubles.get((sender.number, receiver.number))
                if trouble is None:
                    _deliver(receiver, packet)
                else:
                    self._treat((sender.number, receiver.number), trouble, packet)

    def _treat(self, wire: tuple[int, int], trouble: Trouble, packet: bytes) -> None:
        if self._random.random() < trouble.lost:
            return
        now = due = time.monotonic()
        if trouble.rate is not None:
            due = max(now, self._free_at.get(wire, now))
            if due - now > _LONGEST_QUEUE_S:
                return
            due = self._free_at[wire] = due + len(packet) / trouble.rate
        due += trouble.delay_s + self._random.uniform(0.0, trouble.jitter_s)
        self._count += 1
        heapq.heappush(self._late, (due, self._count, wire[1], packet))

    def _deliver_late(self) -> None:
        now = time.monotonic()
        while self._late and self._late[0][0] <= now:
            _, _, receiver, packet = heapq.heappop(self._late)
            _deliver(self._machines[receiver], packet)


def _deliver(receiver: Machine, packet: bytes) -> None:
    with suppress(OSError):  # Its queue is full: lost, as on any wire.
        os.write(receiver.packets, packet)


@contextmanager
def _in_a_new_net() -> Iterator[None]:
    before = os.open(_OWN_NET, os.O_RDONLY)
    try:
        _checked(_libc().unshare(_NEW_NET))
        yield
    finally:
        _enter(before)
        os.close(before)


def _tun() -> int:
    """A TUN device of the namespace that this thread is in; it goes with the descriptor."""
    fd = os.open(_DEVICE, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, _SET_IFF, struct.pack("16sH22x", b"wire", _TUN_NO_PI))
    return fd


def _enter(net: int) -> None:
    _checked(_libc().setns(net, _NEW_NET))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
