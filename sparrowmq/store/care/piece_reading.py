"""Read the messages of a piece of the log in the folder `set-aside`; damaged bytes are passed over."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from sparrowmq.errors import BadStore
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.store.care.inspect_file import PIECE, LogFile, StoreFile, printable
from sparrowmq.store.vfs import Disk


class PieceRecord(NamedTuple):
    """A sound message of a piece, or damage in it."""

    offset: int  # in the log
    size: int  # in bytes
    message: StoredMessage | None  # None for damage


def check_name(path: Path) -> None:
    """Refuse what is no piece of a log. Raises: BadStore."""
    if not path.is_file():
        raise BadStore(f"there is no file {printable(str(path))}; `ls STORE/set-aside` shows those of a store")
    if not PIECE.fullmatch(path.name):
        raise BadStore(
            f"{printable(str(path))} is no piece of a log: such files are in the folder set-aside of a store, as "
            "BEGIN-END.forked, BEGIN-END.lost and so on"
        )


def read(path: Path) -> Iterator[PieceRecord]:
    """Yield the messages of a piece in the order of the log, and each damage. Raises: OSError, it cannot be read."""
    with closing(StoreFile(Disk(), os.path.abspath(path))) as file:
        piece = LogFile(file)
        for begin, end, part, is_unused in piece.stretches(piece.begin):
            if part.problem and not is_unused:
                yield PieceRecord(begin, end - begin, None)
            elif part.message is not None and not part.problem:
                yield PieceRecord(begin, end - begin, part.message)
