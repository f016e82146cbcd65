"""sparrowmq.spark.columns: pull bodies as Arrow columns, against the records that they were made of."""

import random
import struct
import zlib
from datetime import UTC, datetime
from typing import Any

import pytest

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.kernel.record_layout import MAGIC_BLANK
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.spark.columns import RecordColumns
from tests import records
from tests.spark.columns.decoding import COLUMNS, decode

V4, V6 = "10.0.0.1:40001", "[2001:db8::1]:40002"


PROPERTIES = b"KEYS\x01k1 k2\x02TAGS\x01paid\x02UNIQ_KEY\x01ID\x02"


def encode(offset=0, topic="T", body=b"hello", properties=PROPERTIES, **given):
    fields = {
        "queue_id": 3,
        "flag": 7,
        "queue_offset": offset,
        "physical_offset": 1000 + offset,
        "sys_flag": 0,
        "born_timestamp_ms": 1_700_000_000_123,
        "born_host": hosts.pack(V4),
        "store_timestamp_ms": 1_700_000_000_456,
        "store_host": hosts.pack("127.0.0.1:10911"),
        "reconsume_times": 2,
        "prepared_offset": 99,
        "crc": True,
    } | given
    return records.encoded(topic=topic, body=body, properties=properties, **fields)


def rows(body, *names, **options):
    batch = decode(body, names or list(COLUMNS), **options)
    batch.validate(full=True)
    return batch.to_pylist()


def test_every_column_of_a_plain_record():
    body = encode(5)
    assert rows(body, internal=False) == [
        {
            "topic": "T",
            "queueId": 3,
            "queueOffset": 5,
            "msgId": "ID",
            "offsetMsgId": "7F00000100002A9F00000000000003ED",
            "keys": "k1 k2",
            "tags": "paid",
            "flag": 7,
            "sysFlag": 0,
            "body": b"hello",
            "properties": [("KEYS", "k1 k2"), ("TAGS", "paid"), ("UNIQ_KEY", "ID")],
            "bornTimestamp": datetime(2023, 11, 14, 22, 13, 20, 123000, UTC),
            "storeTimestamp": datetime(2023, 11, 14, 22, 13, 20, 456000, UTC),
            "bornHost": V4,
            "storeHost": "127.0.0.1:10911",
            "reconsumeTimes": 2,
            "preparedTransactionOffset": 99,
            "storeSize": len(body),
            "bodyCrc": zlib.crc32(b"hello") & 0x7FFFFFFF,
            "shardingKey": None,
            "deliverTimestamp": None,
            "priority": None,
        }
    ]


def test_group_due_time_and_priority_are_columns():
    due_ms = 1_700_000_000_123
    waiting = b"TIMER_DELIVER_MS\x01%d\x02" % due_ms
    delivered = b"TIMER_OUT_MS\x01%d\x02" % due_ms
    fifo = b"__SHARDINGKEY\x01g1\x02KEYS\x01k\x02"
    urgent = b"_SYS_MSG_PRIORITY_\x017\x02"
    nonsense = b"_SYS_MSG_PRIORITY_\x01-7\x02TIMER_OUT_MS\x01" + b"9" * 30 + b"\x02"
    body = b"".join(encode(properties=each) for each in (waiting, delivered, fifo, urgent, nonsense, b""))
    found = decode(body, ["shardingKey", "deliverTimestamp", "priority"])
    found.validate(full=True)
    due = datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)
    assert found.to_pydict() == {
        "shardingKey": [None, None, "g1", None, None, None],
        "deliverTimestamp": [due, due, None, None, None, None],
        "priority": [None, None, None, 7, None, None],
    }


def test_the_types_are_those_promised():
    for body in (b"", encode(), encode() * 3):
        batch = decode(body, list(COLUMNS))
        assert dict(zip(batch.schema.names, batch.schema.types, strict=True)) == COLUMNS
        assert batch.num_rows == len(RecordColumns(body))


def test_only_the_asked_columns_come_in_the_asked_order():
    assert decode(encode(4), ["tags", "queueOffset"]).to_pydict() == {"tags": ["paid"], "queueOffset": [4]}
    with pytest.raises(KeyError):
        decode(encode(), ["brokerName"])


def test_the_record_checksum_is_shown_only_when_asked_for():
    assert [name for name, _ in rows(encode(), "properties", internal=True)[0]["properties"]][-1] == "__CRC32#"


def test_a_record_without_a_unique_key_is_known_by_its_place():
    body = encode(0, properties=b"") + encode(1) + encode(2, properties=b"", crc=False)
    assert [row["msgId"] for row in rows(body)] == [
        "7F00000100002A9F00000000000003E8",
        "ID",
        "7F00000100002A9F00000000000003EA",
    ]
    assert [row["tags"] for row in rows(body)] == [None, "paid", None]
    assert rows(body)[0]["properties"] == []


def test_long_topics_and_ipv6_hosts_move_the_fields_but_not_the_values():
    kinds: list[dict[str, Any]] = [
        {"topic": "t" * 200},
        {"born_host": hosts.pack(V6), "sys_flag": SysFlag.BORN_V6},
        {"store_host": hosts.pack(V6), "sys_flag": SysFlag.STORE_V6},
        {"born_host": hosts.pack(V6), "store_host": hosts.pack(V6), "topic": "x" * 128},
        {},
    ]
    found = rows(b"".join(encode(offset, **kind) for offset, kind in enumerate(kinds)))
    assert [row["topic"] for row in found] == ["t" * 200, "T", "T", "x" * 128, "T"]
    assert [row["bornHost"] for row in found] == [V4, V6, V4, V6, V4]
    assert [row["storeHost"] for row in found] == [
        "127.0.0.1:10911",
        "127.0.0.1:10911",
        V6,
        V6,
        "127.0.0.1:10911",
    ]
    assert found[2]["offsetMsgId"] == "20010DB8000000000000000000000001" + "00009C42" + f"{1002:016X}"
    assert found[3]["offsetMsgId"] == "20010DB8000000000000000000000001" + "00009C42" + f"{1003:016X}"
    for offset, row in enumerate(found):
        assert row["body"] == b"hello"
        assert row["tags"] == "paid"
        assert row["queueOffset"] == offset
        assert row["storeTimestamp"] == datetime(2023, 11, 14, 22, 13, 20, 456000, UTC)
        assert (row["reconsumeTimes"], row["preparedTransactionOffset"]) == (2, 99)


def test_records_are_cut_where_their_bodies_inflate_to_too_much():
    bodies = [b"a" * 900, b"b" * 200, b"c" * 5000, b"d" * 10, b"e" * 10]
    flags = [SysFlag.COMPRESSED] * 4 + [0]
    packed = [zlib.compress(body) if flag else body for body, flag in zip(bodies, flags, strict=True)]
    block = b"".join(encode(n, body=packed[n], sys_flag=flags[n]) for n in range(5))
    parts = list(RecordColumns(block).parts(1000))
    assert [part.queue_offsets.tolist() for part in parts] == [[0], [1], [2], [3, 4]]
    assert [body for part in parts for body in part.column("body").to_pylist()] == bodies
    (whole,) = RecordColumns(block).parts(10_000)
    assert whole.column("body").to_pylist() == bodies
    (stored,) = RecordColumns(block, decompress=False).parts(1)
    assert stored.column("body").to_pylist() == packed


def test_a_time_that_no_calendar_has_is_null():
    times = [1_700_000_000_123, 2**62, -(2**62), 253_402_300_799_999, 253_402_300_800_000, 0]
    block = b"".join(encode(n, born_timestamp_ms=time) for n, time in enumerate(times))
    found = [row["bornTimestamp"] for row in rows(block, "bornTimestamp")]
    assert [time and time.year for time in found] == [2023, None, None, 9999, None, 1970]


def test_a_damaged_body_is_null_and_known():
    good, bad = zlib.compress(b"good"), zlib.compress(b"bad")[:-3]
    block = b"".join(encode(n, body=body, sys_flag=1) for n, body in enumerate([good, bad, good, bad]))
    records = RecordColumns(block)
    assert not records.damaged_rows
    assert records.column("body").to_pylist() == [b"good", None, b"good", None]
    assert list(records.damaged_rows) == [1, 3]
    parts = list(RecordColumns(block).parts(5))
    assert [(list(part.damaged_rows), part.column("body").to_pylist()) for part in parts] == [
        ([1], [b"good", None]),
        ([1], [b"good", None]),
    ]


def test_a_body_that_is_called_an_inner_batch_is_damaged_and_hides_no_other_row():
    records = RecordColumns(encode(0) + encode(1, sys_flag=SysFlag.INNER_BATCH) + encode(2))
    assert records.column("body").to_pylist() == [b"hello", None, b"hello"]
    assert [(row, "several messages" in str(why)) for row, why in records.damaged_rows.items()] == [(1, True)]


def test_compressed_bodies_are_inflated_in_their_places_unless_refused():
    packed = zlib.compress(b"long" * 100)
    body = encode(0) + encode(1, body=packed, sys_flag=SysFlag.COMPRESSED) + encode(2, body=b"")
    assert [row["body"] for row in rows(body)] == [b"hello", b"long" * 100, b""]
    assert [row["body"] for row in rows(body, decompress=False)] == [b"hello", packed, b""]


def test_a_random_mix_of_all_kinds_keeps_every_row_in_its_place():
    random.seed(20)
    bodies, kinds = [], []
    for offset in range(500):
        text = random.randbytes(random.randrange(60))
        packed = random.random() < 0.2
        given: dict[str, Any] = {
            "topic": "t" * random.choice([1, 5, 127, 128, 300]),
            "born_host": hosts.pack(random.choice([V4, V6])),
            "store_host": hosts.pack(random.choice([V4, V6])),
            "sys_flag": SysFlag.COMPRESSED if packed else 0,
            "crc": random.random() < 0.5,
            "properties": random.choice([b"", b"a\x01b", b"a\x01b\x02", b"TAGS\x01x\x02a\x01\xc3\xa9"]),
        }
        bodies.append(encode(offset, body=zlib.compress(text) if packed else text, **given))
        kinds.append((text, given))
    for row, (text, given) in zip(rows(b"".join(bodies)), kinds, strict=True):
        assert row["body"] == text
        assert row["topic"] == given["topic"]
        assert hosts.pack(row["bornHost"]) == given["born_host"]
        assert row["offsetMsgId"].startswith(given["store_host"].hex().upper())
        assert [value for name, value in row["properties"] if name == "a"] == (
            [] if not given["properties"] else ["é"] if b"TAGS" in given["properties"] else ["b"]
        )


def mutate(body, position, value):
    return body[:position] + value + body[position + len(value) :]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (encode()[:-1], f"a record of {len(encode())} bytes at byte 0, where {len(encode()) - 1} are left"),
        (encode() + encode()[:50], "50 bytes after the last whole record"),
        (encode() + b"\0\0", "2 bytes after the last"),
        (struct.pack(">I", 0) + encode()[4:], "a record of 0 bytes at byte 0"),
        (struct.pack(">I", 90) + encode()[4:], "a record of 90 bytes"),
        (struct.pack(">I", 0xFFFFFFFF) + encode()[4:], "a record of -1 bytes"),
        (encode() + mutate(encode(), 4, struct.pack(">i", MAGIC_BLANK)), "magic 0xcbd43194"),
        (mutate(encode(), 84, struct.pack(">i", 10**6)), "its body does not fit"),
        (mutate(encode(), 84, struct.pack(">i", -1)), "its body does not fit"),
        (mutate(encode(), 84, struct.pack(">i", 6)), "its .* do"),
        (mutate(encode(), 93, b"\xff"), "its topic does not fit"),
        (mutate(encode(), 95, struct.pack(">h", 3)), "its properties do not fill the rest"),
    ],
)
def test_a_broken_body_is_refused_with_its_place(body, complaint):
    with pytest.raises(RemoteProtocolError, match=complaint):
        RecordColumns(body)


@pytest.mark.slow
def test_no_damaged_byte_leads_outside_the_body():
    random.seed(21)
    whole = b"".join(encode(offset) for offset in range(4))
    refused = 0
    for _ in range(2000):
        body = mutate(whole, random.randrange(len(whole)), random.randbytes(1))
        try:
            decode(body, list(COLUMNS), decompress=False).validate(full=True)
        except RemoteProtocolError:
            refused += 1
    assert refused > 200


def test_some_records_of_a_body_alone():
    body = b"".join(encode(offset, body=b"%d" % offset) for offset in range(5))
    records = RecordColumns(body)
    some = records.filter(records.queue_offsets % 2 == 1)
    assert len(some) == 2
    assert some.column("body").to_pylist() == [b"1", b"3"]
    assert some.column("properties").to_pylist()[0] == [
        ("KEYS", "k1 k2"),
        ("TAGS", "paid"),
        ("UNIQ_KEY", "ID"),
    ]
    assert some.physical_offsets.tolist() == [1001, 1003]
    assert some.sys_flags.tolist() == [0, 0]
    assert len(records.filter(records.queue_offsets < 0)) == 0
