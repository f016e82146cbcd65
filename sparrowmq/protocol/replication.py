"""The replication stream: a slave gets its master's log on a connection of its own (haListenPort).

    slave -> master   offset 8                       the end of the slave's log; the first report asks for all after it
    master -> slave   offset 8, size 4, bytes        the next bytes of the log, which need not be whole records
                      offset 8, 0                    nothing new: a sign of life, every five seconds

A slave may report at any time; the last report counts. All numbers are big-endian and signed.

An extension of ours: with a secret, both sides first prove that they know it.

    slave -> master   "SMQ-HA-1", nonce 32
    master -> slave   "SMQ-HA-1", nonce 32, proof 32 = HMAC-SHA256( secret, "master", both nonces )
    slave -> master   proof 32 = HMAC-SHA256( secret, "slave", both nonces )

A stranger who connects gets the master's proof, and can try out secrets with it. Slaves of older versions demand this
order, and a slave that proved itself first would give its proof to any false master. So the secret must be long.

Another extension: where the master is elected (`enableControllerMode`), a slave introduces itself before its first
report:

    slave -> master   "SMQ-HA-M", brokerId 8, epoch 8              the epoch of the master that it follows
                      "SMQ-HA-S" instead of "SMQ-HA-M"             it also asks how far consumers may read:
    master -> slave   offset 8, -1                                 up to this offset of the log, and no less later

As a report, the first eight bytes would be an offset of 6 exbibytes. No log is so long, so a master without a secret
recognises them too.
Source: HAConnection and HAClient, Java 4.9.7, and their bytes.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import Final, TypeAlias

from sparrowmq.errors import CorruptRecord, RemoteProtocolError
from sparrowmq.kernel.record_layout import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_SIZE_BYTES,
    PREFIX,
)
from sparrowmq.kernel.records import Buffer, Passed, pass_sound
from sparrowmq.protocol.messages.record import check

REPORT: Final = Struct(">q")
HEAD: Final = Struct(">qi")
GREETING: Final = b"SMQ-HA-1"
MEMBER: Final = b"SMQ-HA-M"
ASKING_MEMBER: Final = b"SMQ-HA-S"
MEMBER_SIZE: Final = len(MEMBER) + 16
SHOWN: Final = -1  # the size in a head that says how far consumers may read
NONCE_SIZE: Final = 32
PROOF_SIZE: Final = 32
HELLO_SIZE: Final = len(GREETING) + NONCE_SIZE
_MEMBER: Final = Struct(">8sqq")
_NO_CRC: Final = (1 << 63) - 1  # an offset that no log reaches: a Java master writes no property CRC
_THEIRS: Final = "the log of the master"


# The offset of some bytes of the log, and the bytes; no bytes are a sign of life.
Piece: TypeAlias = tuple[int, memoryview]


class Reports:
    """Decodes the bytes from a slave into its reports."""

    def __init__(self) -> None:
        self._rest = b""

    def receive(self, chunk: bytes) -> int | None:
        """The last complete report; None if there is none yet."""
        said = self._rest + chunk
        whole = len(said) // REPORT.size * REPORT.size
        self._rest = said[whole:]
        if not whole:
            return None
        offset: int = REPORT.unpack_from(said, whole - REPORT.size)[0]
        return offset


class Transfers:
    """Decodes the bytes from a master into pieces of the log. It waits only for complete heads, not for bodies.

    Attributes:
        shown: the offset up to which consumers may read; 0 if the master has not said it.
    """

    def __init__(self) -> None:
        self.shown = 0
        self._head = b""
        self._offset = 0
        self._left = 0

    def receive(self, chunk: bytes) -> list[Piece]:
        """The pieces of the log, as views of `chunk`, and the signs of life. Raises: RemoteProtocolError."""
        pieces: list[Piece] = []
        view, at = memoryview(chunk), 0
        while at < len(view):
            if self._left:
                content = view[at : at + self._left]
                pieces.append((self._offset, content))
                self._offset += len(content)
                self._left -= len(content)
                at += len(content)
                continue
            missing = HEAD.size - len(self._head)
            self._head += view[at : at + missing]
            at += missing
            if len(self._head) == HEAD.size:
                self._offset, self._left = HEAD.unpack(self._head)
                self._head = b""
                if self._left == SHOWN and self._offset >= 0:
                    self.shown, self._left = self._offset, 0
                    continue
                if self._offset < 0 or self._left < 0:
                    raise RemoteProtocolError(
                        f"{self._left} bytes of the log from {self._offset} on; is that the haListenPort of a master?"
                    )
                if not self._left:
                    pieces.append((self._offset, view[:0]))
        return pieces


class WholeRecords:
    """Cuts the bytes of a log into items that can be stored: sound records, and the blank ends of files.

    It keeps each item until it is complete. An item may be most of a file: a repair covers a damaged part with one
    record, or with the blank end of its file.

    Args:
        position: the offset of the first byte to take.
        file_size: of the log's files.
    Attributes:
        position: the end of the last item that was returned.
        has_crcs: whether each returned record has a property CRC, as SparrowMQ writes it.
        problem: why the item at `position` is damaged, or does not fit a log with files of this size. No item is
            returned after it.
    """

    def __init__(self, position: int, file_size: int) -> None:
        self.position = position
        self.has_crcs = True
        self.problem: CorruptRecord | None = None
        self._file_size = file_size
        self._pieces: list[bytes] = []
        self._held_bytes = 0
        self._needed_bytes = PREFIX.size  # fewer bytes show nothing

    @property
    def end(self) -> int:
        """The end of the last byte that was taken."""
        return self.position + self._held_bytes

    def take(self, piece: Buffer) -> memoryview:
        """Take the next bytes, and return all items that are complete now."""
        self._pieces.append(bytes(piece))
        self._held_bytes += len(piece)
        if self._held_bytes < self._needed_bytes or self.problem is not None:
            return memoryview(b"")
        content = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        whole = self._count_whole(content)
        self._pieces = [content[whole:]] if whole < len(content) else []
        self._held_bytes = len(content) - whole
        self.position += whole
        return memoryview(content)[:whole]

    def _count_whole(self, content: bytes) -> int:
        """The number of bytes in complete items. Sets `_needed_bytes` to the bytes that the next one needs."""
        view, at, end = memoryview(content), 0, len(content)
        self._needed_bytes = PREFIX.size
        while end - at >= PREFIX.size:
            at = self._pass(content, at)
            if end - at < PREFIX.size:
                break
            size, magic = PREFIX.unpack_from(content, at)
            offset = self.position + at
            problem = self._misfit(offset, size, magic)
            if problem is None and at + size > end:
                self._needed_bytes = size
                break
            if problem is None and magic != MAGIC_BLANK:
                problem = self._fault(view[at : at + size], offset)
            if problem is not None:
                self.problem = CorruptRecord(_THEIRS, offset, problem)
                break
            at += size
        return at

    def _pass(self, content: bytes, at: int) -> int:
        """The end of the records that are certainly sound, complete, and in one file."""
        left = self._file_size - (self.position + at) % self._file_size - PREFIX.size
        crc_from = self.position if self.has_crcs else _NO_CRC
        return pass_sound(content, self.position, crc_from, Passed(), at, min(len(content), at + left))

    def _fault(self, record: memoryview, offset: int) -> str | None:
        """The expected record at an offset, if this one is damaged. A record of Java has no property CRC."""
        if self.has_crcs and check(record, offset, True) is None:
            return None
        if (fault := check(record, offset)) is not None:
            return f"a sound record, but {fault}"
        self.has_crcs = False
        return None

    def _misfit(self, offset: int, size: int, magic: int) -> str | None:
        """The expected item at `offset`, if one of this size and magic cannot be there."""
        left = self._file_size - offset % self._file_size
        if magic == MAGIC_BLANK:
            fits = size == left
        elif magic in (MAGIC_V1, MAGIC_V2):
            fits = MIN_SIZE_BYTES <= size <= left - PREFIX.size
        else:
            return f"a record; found magic {magic & 0xFFFFFFFF:#010x} and size {size}"
        if fits:
            return None
        ends = f"; a file ends at {offset + size} there" if magic == MAGIC_BLANK else ""
        return (
            f"what fits into the {left} bytes left of a file of {self._file_size}, found {size}{ends}. Probably "
            f"mappedFileSizeCommitLog is another one at the master, and {self._file_size} here: both need the same. "
            "Set the master's value here, move the store of this slave away, and start it empty"
        )


def introduction(member: int, epoch: int, *, asks_shown: bool = False) -> bytes:
    """The introduction of a slave whose master is elected.

    Args:
        asks_shown: whether the master is to say how far consumers may read. An older master would not know it.
    """
    return _MEMBER.pack(ASKING_MEMBER if asks_shown else MEMBER, member, epoch)


def introduced(greeting_bytes: bytes) -> tuple[int, int, bool]:
    """The member's broker id, the epoch of its master, and `asks_shown`. Raises: RemoteProtocolError."""
    greeting, member, epoch = _MEMBER.unpack(greeting_bytes)
    if greeting not in (MEMBER, ASKING_MEMBER):
        raise RemoteProtocolError("it does not say which member it is")
    return member, epoch, greeting == ASKING_MEMBER


def is_introduction(received: bytes) -> bool:
    """Whether an introduction may begin with these bytes."""
    return any(each.startswith(received[: len(each)]) for each in (MEMBER, ASKING_MEMBER))


def hello() -> bytes:
    """The first bytes of each side of an authenticated connection."""
    return GREETING + os.urandom(NONCE_SIZE)


def proof(secret: str, side: str, of_slave: bytes, of_master: bytes) -> bytes:
    """The proof that `side` ("master" or "slave") knows the secret.

    Args:
        of_slave, of_master: the `hello` of each side.
    """
    import hmac  # with OpenSSL's digests, which few groups need

    return hmac.digest(secret.encode(), side.encode() + of_slave + of_master, "sha256")


def is_proof(secret: str, side: str, of_slave: bytes, of_master: bytes, shown: bytes) -> bool:
    """Whether `shown` is the right proof."""
    import hmac

    return hmac.compare_digest(proof(secret, side, of_slave, of_master), shown)
