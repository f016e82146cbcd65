"""The bytes between master and slave: in any pieces, and never taken for what they are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.kernel.record_layout import MAGIC_BLANK, PREFIX
from sparrowmq.protocol import replication
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.protocol.messages.record import encode
from sparrowmq.protocol.replication import HEAD, REPORT, VISIBLE_END, Reports, Transfers, WholeRecords

FILE_SIZE = 4096
HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])


def record(offset: int, body: bytes = b"body") -> bytes:
    entry = Entry("Orders", 0, body, Properties(), 1, HOST)
    return bytes(encode(entry, Placed(offset, 0, 1, HOST), True))


def log_of(count: int, begin: int = 0) -> bytes:
    content = b""
    for _ in range(count):
        content += record(begin + len(content))
    return content


def blank(size: int) -> bytes:
    return PREFIX.pack(size, MAGIC_BLANK) + bytes(size - PREFIX.size)


def in_pieces(content: bytes, size: int) -> list[bytes]:
    return [content[at : at + size] for at in range(0, len(content), size)]


# Reports ------------------------------------------------------------------------------------------------------------


def test_a_report_is_an_offset_in_eight_bytes_and_the_last_one_counts() -> None:
    assert Reports().receive((777).to_bytes(8, "big")) == 777
    assert Reports().receive(REPORT.pack(1) + REPORT.pack(2) + REPORT.pack(3)) == 3


def test_reports_come_in_any_pieces() -> None:
    reports = Reports()
    said = [reports.receive(piece) for piece in in_pieces(REPORT.pack(1) + REPORT.pack(1 << 40), 3)]
    assert [each for each in said if each is not None] == [1, 1 << 40]


# Transfers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 5, 12, 13, 1000])
def test_transfers_come_in_any_pieces_and_say_where_each_byte_lies(size: int) -> None:
    stream = b"".join(
        (
            HEAD.pack(100, 5),
            b"hello",
            HEAD.pack(105, 0),
            HEAD.pack(103, VISIBLE_END),
            HEAD.pack(105, 300),
            bytes(300),
        )
    )
    transfers, log, signs = Transfers(), {}, []
    for chunk in in_pieces(stream, size):
        for offset, content in transfers.receive(chunk):
            if not content:
                signs.append(offset)
            for at, byte in enumerate(content):
                log[offset + at] = byte
    assert bytes(log[offset] for offset in sorted(log)) == b"hello" + bytes(300)
    assert (min(log), max(log), signs, transfers.visible_end) == (100, 404, [105], 103)


@pytest.mark.parametrize("head", [HEAD.pack(-1, 5), HEAD.pack(5, -2), HEAD.pack(-1, VISIBLE_END), b"HTTP/1.1 404"])
def test_what_is_no_head_is_refused(head: bytes) -> None:
    transfers = Transfers()
    if head.startswith(b"HTTP"):
        # It would be a very far offset: who follows sees that.
        ((offset, _),) = transfers.receive(head + b"x")
        assert offset > 1 << 60
        return
    with pytest.raises(RemoteProtocolError, match="is that the haListenPort of a master"):
        transfers.receive(head)


# Whole records ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 91, 5000])
def test_only_whole_records_are_given_back_and_all_of_them(size: int) -> None:
    content = log_of(9)
    whole, taken = WholeRecords(0, FILE_SIZE), b""
    for piece in in_pieces(content, size):
        some = bytes(whole.take(piece))
        assert len(some) % len(record(0)) == 0
        taken += some
        assert whole.position == len(taken)
    assert taken == content and whole.position == whole.end == len(content)


def test_the_blank_end_of_a_file_is_whole_and_the_next_file_goes_on() -> None:
    content = log_of(3)
    content += blank(FILE_SIZE - len(content)) + log_of(2, FILE_SIZE)
    whole = WholeRecords(0, FILE_SIZE)
    assert bytes(whole.take(content)) == content and whole.problem is None


@pytest.mark.parametrize("is_blank", [True, False])
def test_what_a_repair_put_over_a_large_damaged_part_is_taken_like_any_other(is_blank: bool) -> None:
    file_size = 96 << 20
    first = record(0)
    large = blank(file_size - len(first)) if is_blank else record(len(first), bytes(80 << 20))
    whole, taken = WholeRecords(0, file_size), 0
    for piece in in_pieces(first + large, 8 << 20):
        taken += len(whole.take(piece))
    assert whole.problem is None and taken == len(first) + len(large)


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


DAMAGE: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda first: flipped(first, len(first) - 30), "a sound record"),
    (lambda first: record(7), "a sound record"),  # which says that it lies elsewhere
    (lambda first: bytes(200), "found magic 0x00000000 and size 0"),
    (
        lambda first: PREFIX.pack(1 << 20, PREFIX.unpack(first[:8])[1]) + first[8:],
        "mappedFileSizeCommitLog is another one",
    ),
    (lambda first: blank(100), "mappedFileSizeCommitLog is another one"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGE)
def test_nothing_is_given_back_from_damage_on(damage: Callable[[bytes], bytes], words: str) -> None:
    good = log_of(2)
    whole = WholeRecords(0, FILE_SIZE)
    taken = bytes(whole.take(good + damage(record(len(good))) + bytes(PREFIX.size)))
    assert taken == good and whole.position == len(good)
    assert whole.problem is not None and words in str(whole.problem)
    assert bytes(whole.take(log_of(1, len(good)))) == b""


def test_a_sound_record_over_the_end_of_a_file_is_none_of_such_a_log() -> None:
    content = log_of(FILE_SIZE // len(record(0)) + 3)
    fitting = (FILE_SIZE - PREFIX.size) // len(record(0)) * len(record(0))
    whole = WholeRecords(0, FILE_SIZE)
    assert bytes(whole.take(content)) == content[:fitting]
    assert whole.problem is not None and "mappedFileSizeCommitLog is another one" in str(whole.problem)


def test_records_of_a_master_that_writes_no_checksum_over_all_are_taken_between_others() -> None:
    content = record(0)
    entry = Entry("Orders", 0, b"body", Properties(), 1, HOST)
    for crc in (False, True, False):
        content += bytes(encode(entry, Placed(len(content), 0, 1, HOST), crc))
    whole = WholeRecords(0, FILE_SIZE)
    assert bytes(whole.take(record(0))) == record(0) and whole.has_crcs
    assert bytes(whole.take(content[len(record(0)) :])) == content[len(record(0)) :] and whole.problem is None
    assert not whole.has_crcs
    damaged = flipped(content, content.index(b"body", len(record(0))))
    whole = WholeRecords(0, FILE_SIZE)
    assert bytes(whole.take(damaged)) == record(0) and whole.problem is not None


# Proofs -------------------------------------------------------------------------------------------------------------


def test_who_knows_the_secret_can_show_it_and_nobody_else() -> None:
    of_slave, of_master = replication.hello(), replication.hello()
    assert of_slave != of_master and len(of_slave) == replication.HELLO_SIZE
    shown = replication.proof("secret", "slave", of_slave, of_master)
    assert len(shown) == replication.PROOF_SIZE
    assert replication.is_proof("secret", "slave", of_slave, of_master, shown)
    assert not replication.is_proof("other", "slave", of_slave, of_master, shown)
    assert not replication.is_proof("secret", "master", of_slave, of_master, shown)
    assert not replication.is_proof("secret", "slave", of_slave, replication.hello(), shown)
    assert not replication.is_proof("secret", "slave", replication.hello(), of_master, shown)


def test_a_member_says_which_one_it_is_and_whom_it_means_to_follow() -> None:
    said = replication.introduction(2, 7)
    assert (len(said), said[:8]) == (replication.MEMBER_SIZE, replication.MEMBER)
    assert replication.parse_introduction(said) == (2, 7, False)
    assert replication.parse_introduction(replication.introduction(2, 7, asks_visible_end=True)) == (2, 7, True)
    with pytest.raises(RemoteProtocolError):
        replication.parse_introduction(b"SMQ-HA-1" + said[8:])
