"""The replication stream: a slave gets its master's log on a connection of its own (haListenPort).

    slave -> master   offset 8                       the end of the slave's log; the first report asks for all after it
    master -> slave   offset 8, size 4, bytes        the next bytes of the log, which need not be whole records
                      offset 8, 0                    nothing new: a sign of life, every five seconds

A slave may report at any time; the last report counts. All numbers are big-endian and signed.

An extension of ours: with a secret, both sides first prove that they know it.

    slave -> master   "SMQ-HA-1", nonce 32
    master -> slave   "SMQ-HA-1", nonce 32, proof 32 = HMAC-SHA256( secret, "master", both nonces )
    slave -> master   proof 32 = HMAC-SHA256( secret, "slave", both nonces )

A stranger who connects gets the master's proof, and can try out secrets with it. So the secret must be long. (A slave
that proved itself first would give its proof to any false master.)

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
from sparrowmq.kernel.record_layout import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_SIZE_BYTES, PREFIX
from sparrowmq.kernel.records import Buffer, Passed, pass_sound
from sparrowmq.protocol.messages.record import check

REPORT: Final = Struct(">q")
HEAD: Final = Struct(">qi")
GREETING: Final = b"SMQ-HA-1"
MEMBER: Final = b"SMQ-HA-M"
ASKING_MEMBER: Final = b"SMQ-HA-S"
MEMBER_SIZE: Final = len(MEMBER) + 16
VISIBLE_END: Final = -1  # the size in a head that says how far consumers may read
NONCE_SIZE: Final = 32
PROOF_SIZE: Final = 32
HELLO_SIZE: Final = len(GREETING) + NONCE_SIZE
_MEMBER_STRUCT: Final = Struct(">8sqq")
_NO_CRC: Final = (1 << 63) - 1  # an offset that no log reaches: a Java master writes no property CRC
_MASTERS_LOG: Final = "the log of the master"


# The offset of some bytes of the log, and the bytes; no bytes are a sign of life.
Piece: TypeAlias = tuple[int, memoryview]


class Reports:
    def __init__(self) -> None:
        self._incomplete = b""

    def receive(self, chunk: bytes) -> int | None:
        received = self._incomplete + chunk
        whole_bytes = len(received) // REPORT.size * REPORT.size
        self._incomplete = received[whole_bytes:]
        if not whole_bytes:
            return None
        offset: int = REPORT.unpack_from(received, whole_bytes - REPORT.size)[0]
        return offset


class Transfers:
    """Decodes the bytes from a master into pieces of the log. It waits only for complete heads, not for bodies."""

    def __init__(self) -> None:
        self.visible_end = 0  # the offset up to which consumers may read; 0 if the master has not said it
        self._head = b""
        self._offset = 0
        self._remaining_bytes = 0

    def receive(self, chunk: bytes) -> list[Piece]:
        """The pieces of the log, as views of `chunk`, and the signs of life. Raises: RemoteProtocolError."""
        pieces: list[Piece] = []
        view, at = memoryview(chunk), 0
        while at < len(view):
            if self._remaining_bytes:
                content = view[at : at + self._remaining_bytes]
                pieces.append((self._offset, content))
                self._offset += len(content)
                self._remaining_bytes -= len(content)
                at += len(content)
                continue
            missing_bytes = HEAD.size - len(self._head)
            self._head += view[at : at + missing_bytes]
            at += missing_bytes
            if len(self._head) == HEAD.size:
                self._offset, self._remaining_bytes = HEAD.unpack(self._head)
                self._head = b""
                if self._remaining_bytes == VISIBLE_END and self._offset >= 0:
                    self.visible_end, self._remaining_bytes = self._offset, 0
                    continue
                if self._offset < 0 or self._remaining_bytes < 0:
                    raise RemoteProtocolError(
                        f"{self._remaining_bytes} bytes of the log from {self._offset} on; is that the haListenPort "
                        "of a master?"
                    )
                if not self._remaining_bytes:
                    pieces.append((self._offset, view[:0]))
        return pieces


class WholeRecords:
    """Cuts the bytes of a log, from offset `position` on, into items that can be stored: sound records, and the blank
    ends of files. It keeps each item until it is complete, and an item may be most of a file: a repair covers a damaged
    part with one.
    """

    def __init__(self, position: int, file_size: int) -> None:
        self.position = position  # the end of the last item that was returned
        self.has_crcs = True  # whether each returned record has a property CRC, as SparrowMQ writes it
        # Why the item at `position` is damaged, or does not fit a log with files of this size. No item is returned
        # after it.
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
        whole_bytes = self._count_whole(content)
        self._pieces = [content[whole_bytes:]] if whole_bytes < len(content) else []
        self._held_bytes = len(content) - whole_bytes
        self.position += whole_bytes
        return memoryview(content)[:whole_bytes]

    def _count_whole(self, content: bytes) -> int:
        """The number of bytes in complete items. Sets `_needed_bytes` to the bytes that the next one needs."""
        view, at, end = memoryview(content), 0, len(content)
        self._needed_bytes = PREFIX.size
        while end - at >= PREFIX.size:
            at = self._end_of_sound(content, at)
            if end - at < PREFIX.size:
                break
            size, magic = PREFIX.unpack_from(content, at)
            offset = self.position + at
            problem = self._misfit_text(offset, size, magic)
            if problem is None and at + size > end:
                self._needed_bytes = size
                break
            if problem is None and magic != MAGIC_BLANK:
                problem = self._damage_text(view[at : at + size], offset)
            if problem is not None:
                self.problem = CorruptRecord(_MASTERS_LOG, offset, problem)
                break
            at += size
        return at

    def _end_of_sound(self, content: bytes, at: int) -> int:
        """The end of the records that are certainly sound, complete, and in one file."""
        remaining_bytes = self._file_size - (self.position + at) % self._file_size - PREFIX.size
        crc_from = self.position if self.has_crcs else _NO_CRC
        end = max(at, min(len(content), at + remaining_bytes))
        return pass_sound(content, self.position, crc_from, Passed(), at, end)

    def _damage_text(self, record: memoryview, offset: int) -> str | None:
        """The expected record at an offset, if this one is damaged. A record of Java has no property CRC."""
        if self.has_crcs and check(record, offset, True) is None:
            return None
        if (damage := check(record, offset)) is not None:
            return f"a sound record, but {damage}"
        self.has_crcs = False
        return None

    def _misfit_text(self, offset: int, size: int, magic: int) -> str | None:
        """The expected item at `offset`, if one of this size and magic cannot be there."""
        remaining_bytes = self._file_size - offset % self._file_size
        if magic == MAGIC_BLANK:
            fits = size == remaining_bytes
        elif magic in (MAGIC_V1, MAGIC_V2):
            fits = MIN_SIZE_BYTES <= size <= remaining_bytes - PREFIX.size
        else:
            return f"a record; found magic {magic & 0xFFFFFFFF:#010x} and size {size}"
        if fits:
            return None
        ends = f"; a file ends at {offset + size} there" if magic == MAGIC_BLANK else ""
        return (
            f"what fits into the {remaining_bytes} bytes left of a file of {self._file_size}, found {size}{ends}. "
            f"Probably mappedFileSizeCommitLog is another one at the master, and {self._file_size} here: both need the "
            "same. Set the master's value here, move the store of this slave away, and start it empty"
        )


def introduction(member: int, epoch: int, *, asks_visible_end: bool = False) -> bytes:
    """The introduction of a slave whose master is elected. An older master does not know `asks_visible_end`."""
    return _MEMBER_STRUCT.pack(ASKING_MEMBER if asks_visible_end else MEMBER, member, epoch)


def parse_introduction(greeting_bytes: bytes) -> tuple[int, int, bool]:
    """The member's broker id, the epoch of its master, and `asks_visible_end`. Raises: RemoteProtocolError."""
    greeting, member, epoch = _MEMBER_STRUCT.unpack(greeting_bytes)
    if greeting not in (MEMBER, ASKING_MEMBER):
        raise RemoteProtocolError("it does not say which member it is")
    return member, epoch, greeting == ASKING_MEMBER


def is_introduction(received: bytes) -> bool:
    """Whether an introduction may begin with these bytes."""
    return any(greeting.startswith(received[: len(greeting)]) for greeting in (MEMBER, ASKING_MEMBER))


def hello() -> bytes:
    """The first bytes of each side of an authenticated connection."""
    return GREETING + os.urandom(NONCE_SIZE)


def proof(secret: str, side: str, of_slave: bytes, of_master: bytes) -> bytes:
    """The proof that `side` ("master" or "slave") knows the secret, by the `hello` of both."""
    import hmac  # with OpenSSL's digests, which few groups need

    return hmac.digest(secret.encode(), side.encode() + of_slave + of_master, "sha256")


def is_proof(secret: str, side: str, of_slave: bytes, of_master: bytes, proof_bytes: bytes) -> bool:
    import hmac

    return hmac.compare_digest(proof(secret, side, of_slave, of_master), proof_bytes)
