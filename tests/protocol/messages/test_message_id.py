"""Ids of messages: layout, order, month changes, and Java's and C++'s observed ids."""

from datetime import datetime

import pytest

from sparrowmq.errors import LocalProtocolError, RemoteProtocolError
from sparrowmq.kernel.batch_layout import RESERVED
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages.message_id import (
    OffsetId,
    UniqueIds,
    offset_id,
    parse_offset_id,
)

NOON_MS = int(datetime(2024, 12, 31, 12).timestamp()) * 1000


def test_a_unique_id_holds_ip_pid_salt_time_and_counter() -> None:
    ids = UniqueIds(bytes([10, 0, 0, 1]), pid=0x12345, salt=0xCAFEBABE, counter=0xFFFF)
    since_month_ms = NOON_MS - int(datetime(2024, 12, 1).timestamp()) * 1000
    assert ids.next(NOON_MS) == f"0A0000012345CAFEBABE{since_month_ms:08X}FFFF"
    assert ids.next(NOON_MS).endswith("0000")


def test_an_ipv6_maker_gives_56_digits() -> None:
    assert len(UniqueIds(bytes(16), 1, 2).next(NOON_MS)) == 56


def test_ids_of_one_maker_differ_within_a_millisecond() -> None:
    ids = UniqueIds(bytes(4), 1, 2)
    assert len({ids.next(NOON_MS) for _ in range(0x10000)}) == 0x10000


def test_reserved_ids_are_those_of_their_time_and_of_nothing_else() -> None:
    ids, expected = UniqueIds(bytes(4), 1, 2, 0xFFF0), UniqueIds(bytes(4), 1, 2, 0xFFF0)
    reserved = ids.reserve(NOON_MS)
    after = ids.next(NOON_MS)
    assert [reserved.next() for _ in range(reserved.left)] == [expected.next(NOON_MS) for _ in range(RESERVED)]
    assert reserved.left == 0 and after == expected.next(NOON_MS)


def test_time_starts_again_with_the_month() -> None:
    ids = UniqueIds(bytes(4), 1, 2)
    december, january = ids.next(NOON_MS), ids.next(NOON_MS + 12 * 3600 * 1000 + 5)
    assert int(january[20:28], 16) == 5 < int(december[20:28], 16)


def test_an_ip_of_another_size_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="4 or 16"):
        UniqueIds(b"abc", 1, 2)


@pytest.mark.covers("S-STORE-06")
def test_an_offset_id_is_the_one_that_java_made() -> None:
    host = hosts.pack("127.0.0.1:11911")
    assert offset_id(host, 0) == "7F00000100002E870000000000000000"
    assert parse_offset_id("7F00000100002E870000000000000000") == OffsetId("127.0.0.1:11911", 0)


@pytest.mark.parametrize("address", ["10.1.2.3:10911", "[::1]:10911"])
def test_offset_ids_are_read_back(address: str) -> None:
    assert parse_offset_id(offset_id(hosts.pack(address), 1 << 40)) == OffsetId(address, 1 << 40)


@pytest.mark.parametrize("text", ["", "7F", "G" * 32, "0" * 40, "7F000001" + "00010000" + 16 * "0"])
def test_a_text_that_is_no_offset_id_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="32 hex digits"):
        parse_offset_id(text)


@pytest.mark.parametrize("ip", [bytes(4), bytes(range(16))])
def test_many_ids_made_at_once_are_those_that_come_one_by_one(ip: bytes):
    one_by_one, at_once = UniqueIds(ip, 7, 0x1234ABCD, 0xFFF0), UniqueIds(ip, 7, 0x1234ABCD, 0xFFF0)
    for count, now_ms in (
        (0, 1_700_000_000_000),
        (1, 1_700_000_000_000),
        (40, 1_700_000_000_000),
        (3, 1_700_000_070_000),
    ):
        wanted = "".join(one_by_one.next(now_ms) for _ in range(count))
        assert at_once.take(count, now_ms).decode() == wanted
    assert at_once.next(1_700_000_000_000) == one_by_one.next(1_700_000_000_000)
