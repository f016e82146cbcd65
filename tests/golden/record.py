"""A recording proxy: stands between a client and Apache's servers and keeps every frame.

A broker tells its address to the name server, and that to clients, so a proxy must answer under an address of its
own: what the servers say is rewritten on the way from the real port to the proxy's, and back, in the three ways an
address is written (text, hexadecimal message id, eight bytes in a record). All ports have five digits, so no length
changes. What is kept shows neither: a broker is at 127.0.0.1:10911, and this machine's own address, name and folders
are masked.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Self

from tests.golden import FOLDER, frames, parse_header, piece, scenarios

Swaps = Sequence[tuple[bytes, bytes]]

BROKER_PORT: Final = 10911
_LISTEN_BACKLOG: Final = 16
_BACK: Final = {">": "<", "<": ">"}


class Tape:
    """Collects frames from any number of proxies until they are cut off as a scenario."""

    def __init__(self, masks: Iterable[tuple[str, str]] = ()) -> None:
        self.masks = [*_machine(), *((old.encode(), new.encode()) for old, new in masks)]
        self._kept: list[tuple[str, str, int, bytes]] = []
        self._lock = threading.Lock()
        self._connections = 0

    def connection(self) -> int:
        with self._lock:
            self._connections += 1
            return self._connections

    def keep(self, direction: str, peer: str, connection: int, frame: bytes) -> None:
        with self._lock:
            self._kept.append((direction, peer, connection, frame))

    def cut(self, scenario: str, keeps: Callable[[int], bool] = lambda code: True) -> int:
        """Write what was kept since the last cut, without the requests that `keeps` refuses, and without replies
        to what is not there."""
        with self._lock:
            kept, self._kept, self._connections = self._kept, [], 0
        numbers: dict[int, int] = {}
        pack, asked = bytearray(), set()
        for direction, peer, connection, frame in kept:
            code, opaque, flag = parse_header(frame)
            if flag & 1:
                wanted = (connection, _BACK[direction], opaque) in asked
            elif wanted := keeps(code):
                asked.add((connection, direction, opaque))
            if wanted:
                number = numbers.setdefault(connection, len(numbers))
                pack += piece(direction, peer, number, _mask(frame, self.masks))
        file = FOLDER / f"{scenario}.pack"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pack)
        return len(pack)


class Proxy:
    """Listens on `port` and passes frames on to `target`, keeping them on the tape; `swaps` rewrite real to proxied."""

    def __init__(self, tape: Tape, peer: str, target: int, swaps: Swaps = ()) -> None:
        self._tape, self._peer, self._target, self._swaps = tape, peer, target, swaps
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=_LISTEN_BACKLOG)
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"

    def retarget(self, target: int, swaps: Swaps) -> None:
        """Pass new connections on to another server."""
        self._target, self._swaps = target, swaps

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            number, swaps = self._tape.connection(), self._swaps
            back = [(new, old) for old, new in swaps]
            for direction, source, sink, changes in (
                (">", client, server, back),
                ("<", server, client, swaps),
            ):
                args = (direction, number, source, sink, changes)
                threading.Thread(target=self._pass_on, args=args, daemon=True).start()

    def _pass_on(self, direction: str, number: int, source: socket.socket, sink: socket.socket, swaps: Swaps) -> None:
        try:
            while frame := _read_frame(source):
                self._tape.keep(direction, self._peer, number, frame)
                sink.sendall(_swap(frame, swaps))
        except OSError:
            pass
        for end in (source, sink):
            end.close()


def address_swaps(old_port: int, new_port: int) -> list[tuple[bytes, bytes]]:
    """How to write 127.0.0.1:`old_port` as `new_port`: as text, in message ids, in records."""
    return [
        (b"127.0.0.1:%d" % old_port, b"127.0.0.1:%d" % new_port),
        (b"7F000001%08X" % old_port, b"7F000001%08X" % new_port),
        (b"\x7f\0\0\1" + old_port.to_bytes(4, "big"), b"\x7f\0\0\1" + new_port.to_bytes(4, "big")),
    ]


def masks_of_ports(*ports: int) -> list[tuple[bytes, bytes]]:
    """Let every port of a broker, and the next one for HA, look like Apache's usual ones."""
    both = [(port + up, BROKER_PORT + up) for port in ports for up in (0, 1)]
    return [swap for old, new in both for swap in address_swaps(old, new)]


def _machine() -> list[tuple[bytes, bytes]]:
    """This machine's name and its address: as text, and in the unique ids that Java clients make from it."""
    name = socket.gethostname()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # sends nothing; tells which address would be used
            address = probe.getsockname()[0]
    except OSError:
        address = socket.gethostbyname(name)
    binary = socket.inet_aton(address)
    masks = [(address.encode(), b"127.0.0.1"), (binary.hex().upper().encode(), b"7F000001")]
    return masks + ([(name.encode(), b"localhost")] if len(name) > 3 and name != "localhost" else [])


def _mask(frame: bytes, swaps: Swaps) -> bytes:
    """Replace in header and body, and mend the lengths. A binary header holds lengths too: it must keep its own."""
    word = int.from_bytes(frame[4:8], "big")
    kind, header_size = word >> 24, word & 0xFFFFFF
    header, body = _swap(frame[8 : 8 + header_size], swaps), _swap(frame[8 + header_size :], swaps)
    if kind and len(header) != header_size:
        raise ValueError("a mask would change the length of a binary header")
    lengths = (4 + len(header) + len(body)).to_bytes(4, "big") + (kind << 24 | len(header)).to_bytes(4, "big")
    return lengths + header + body


def _swap(data: bytes, swaps: Swaps) -> bytes:
    for old, new in swaps:
        data = data.replace(old, new)
    return data


def _read_frame(source: socket.socket) -> bytes:
    size = _read(source, 4)
    return size and size + _read(source, int.from_bytes(size, "big"))


def _read(source: socket.socket, size: int) -> bytes:
    pieces = bytearray()
    while len(pieces) < size:
        got = source.recv(size - len(pieces))
        if not got:
            return b""
        pieces += got
    return bytes(pieces)


def write_output(scenario: str, text: str, masks: Swaps) -> None:
    """Keep what a tool printed beside what it said on the wire."""
    (Path(FOLDER) / f"{scenario}.out").write_bytes(_swap(text.encode(), masks))


def write_index() -> None:
    """List, for human readers, what each scenario asks and what servers ask in it."""
    lines = ["scenario\tframes\trequests\tasked by servers"]
    for scenario in scenarios():
        found = frames(scenario)
        sides = [[f.code for f in found if f.is_request and f.direction == side] for side in "><"]
        texts = [" ".join(map(str, sorted(set(codes)))) for codes in sides]
        lines.append("\t".join([scenario, str(len(found)), *texts]))
    (FOLDER / "index.tsv").write_text("\n".join(lines) + "\n")
