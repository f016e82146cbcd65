"""What real clients, tools and brokers said on the wire, byte for byte. README.md tells what each scenario holds.

    for frame in frames("java-4.9.8/send"):
        if frame.is_request and frame.peer == "broker":
            decode(frame.data)

A pack is a row of pieces; `record.py` writes them:

    | 4 length of what follows | 1 direction '>' '<' | 1 peer 'n' 'b' | 2 connection | frame, with its own length |
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "frames"
STORES: Final = Path(__file__).parent / "stores"

_PIECE: Final = struct.Struct(">IBBH")
_PEERS: Final = {ord("n"): "namesrv", ord("b"): "broker"}
_BINARY_HEADER: Final = struct.Struct(">hbhii")


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as it crossed the wire."""

    number: int
    direction: str  # ">" from the client, "<" from the server
    peer: str  # who is at the server's end: "namesrv" or "broker"
    connection: int
    code: int
    opaque: int
    flag: int
    answers: int | None  # the code of the request that this replies to
    data: bytes  # whole: its 4 bytes of length first

    @property
    def is_request(self) -> bool:
        return not self.flag & 1

    @property
    def header(self) -> bytes:
        return self.data[8 : 8 + (_word(self.data, 4) & 0xFFFFFF)]

    @property
    def body(self) -> bytes:
        return self.data[8 + len(self.header) :]


def scenarios() -> list[str]:
    """The name of each recorded scenario."""
    return sorted(str(pack.relative_to(FOLDER).with_suffix("")) for pack in FOLDER.rglob("*.pack"))


def frames(scenario: str) -> list[Frame]:
    """The frames of one scenario, in the order in which they crossed."""
    pack = FOLDER / f"{scenario}.pack"
    if not pack.exists():
        raise FileNotFoundError(f"no scenario {scenario}; there are {', '.join(scenarios())}")
    asked: dict[tuple[int, str, int], int] = {}
    found = []
    for number, (direction, peer, connection, data) in enumerate(pieces(pack.read_bytes())):
        code, opaque, flag = parse_header(data)
        back = "<" if direction == ">" else ">"
        if not flag & 1:
            asked[connection, direction, opaque] = code
        answers = asked.get((connection, back, opaque)) if flag & 1 else None
        found.append(Frame(number, direction, peer, connection, code, opaque, flag, answers, data))
    return found


def pieces(pack: bytes) -> Iterator[tuple[str, str, int, bytes]]:
    """Direction, peer, connection and frame of each piece of a pack."""
    at = 0
    while at < len(pack):
        length, direction, peer, connection = _PIECE.unpack_from(pack, at)
        yield chr(direction), _PEERS[peer], connection, pack[at + _PIECE.size : at + 4 + length]
        at += 4 + length


def piece(direction: str, peer: str, connection: int, frame: bytes) -> bytes:
    """The inverse of `pieces`, for one frame."""
    return _PIECE.pack(len(frame) + _PIECE.size - 4, ord(direction), ord(peer[0]), connection) + frame


def parse_header(frame: bytes) -> tuple[int, int, int]:
    """Code, opaque and flag of a frame, whichever way its header is written."""
    word = _word(frame, 4)
    if word >> 24:
        code, _language, _version, opaque, flag = _BINARY_HEADER.unpack_from(frame, 8)
        return code, opaque, flag
    header = json.loads(frame[8 : 8 + (word & 0xFFFFFF)])
    return header["code"], header["opaque"], header.get("flag", 0)


def _word(frame: bytes, at: int) -> int:
    return int.from_bytes(frame[at : at + 4], "big")
