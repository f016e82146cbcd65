"""sparrowmq.spark.source.log_reader: rows out of log files, of our stores and of Java's."""

import pickle
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.spark.source.partition_ranges import RowsLost
from sparrowmq.spark.source_and_sink import RocketMQSource
from tests.store.stores import message, put

GOLDEN = Path(__file__).parents[2] / "golden" / "stores"


def test_only_the_chosen_topics_are_shown(stores, read):
    store = stores.open()
    for number in range(40):
        put(store, b"%d" % number, topic="Orders" if number % 4 else "Bills", queue_id=number % 3)
    put(store, b"again", topic="%RETRY%shop")
    put(store, b"dead", topic="%DLQ%shop")
    put(store, b"half", topic="RMQ_SYS_TRANS_HALF_TOPIC")
    store.close()
    path = stores.settings.path
    assert len(read(path)) == 30
    assert {row[0] for row in read(path, topic="Orders,Bills,%DLQ%shop")} == {"Orders", "Bills", "%DLQ%shop"}
    assert len(read(path, subscribePattern=".*")) == 40
    assert len(read(path, subscribePattern="B.*")) == 10
    assert read(path, topic="Nothing") == []
    assert read(path, topic="Bills")[:2] == [("Bills", 0, 0, b"0"), ("Bills", 1, 0, b"4")]


def test_tags_are_compared_by_their_text(stores, read):
    store = stores.open()
    put(store, b"1", tag="paid")
    put(store, b"2", tag="open")
    put(store, b"3")
    put(store, b"4", tag="AaAa")  # the hash of BBBB
    put(store, b"5", tag="BBBB")
    store.close()
    path = stores.settings.path
    assert [row[3] for row in read(path, subExpression="paid || BBBB")] == [b"1", b"5"]
    assert [row[3] for row in read(path, tags="*")] == [b"1", b"2", b"3", b"4", b"5"]


def test_messages_of_an_old_transaction_that_are_in_no_queue_are_not_shown(stores, read):
    store = stores.open()
    flags = (SysFlag.PREPARED, SysFlag.COMMIT, SysFlag.ROLLBACK, 0)
    for flag in flags:
        store.append(message(b"%d" % flag, sys_flag=flag))
    store.close()
    assert [row[3] for row in read(stores.settings.path)] == [b"8", b"0"]


def test_a_flipped_bit_in_a_body_is_found_when_the_crcs_are_checked(stores, read, caplog):
    store = stores.open()
    places = [put(store, b"body %d" % number) for number in range(5)]
    store.close()
    stores.leave_damaged()
    file = stores.settings.path / "commitlog" / f"{0:020}"
    content = bytearray(file.read_bytes())
    content[content.index(b"body 2")] ^= 1
    file.write_bytes(content)
    assert [row[3] for row in read(stores.settings.path, checkCrc="false")][2] == b"cody 2"
    damage = f"damaged from offset {places[2].offset} to {places[2].end}"
    with pytest.raises(RowsLost, match=damage):
        read(stores.settings.path)
    with pytest.raises(RowsLost, match=damage):
        read(stores.settings.path, checkCrc="true")
    sound = read(stores.settings.path, checkCrc="true", failOnDataLoss="false")
    assert [row[2] for row in sound] == [0, 1, 3, 4]
    assert damage in caplog.text


@pytest.mark.parametrize("field", [20 + 8, 84])  # the record's own place, the size of its body
def test_a_record_that_contradicts_itself_is_damage(stores, read, field):
    store = stores.open()
    places = [put(store, b"body %d" % number) for number in range(5)]
    store.close()
    stores.leave_damaged()
    file = stores.settings.path / "commitlog" / f"{0:020}"
    content = bytearray(file.read_bytes())
    content[places[2].offset + field] ^= 0x40
    file.write_bytes(content)
    with pytest.raises(RowsLost, match=f"damaged from offset {places[2].offset} to {places[2].end}"):
        read(stores.settings.path, checkCrc="false")
    assert [row[2] for row in read(stores.settings.path, checkCrc="false", failOnDataLoss="false")] == [
        0,
        1,
        3,
        4,
    ]


@pytest.mark.parametrize("version", ["4.9.7", "4.9.7-killed", "5.4.0", "5.4.0-crc"])
def test_stores_of_java_are_read(read, version):
    rows = read(GOLDEN / version, topic="StoreTopic", checkCrc="true")
    assert rows == read(GOLDEN / version, subscribePattern="Store.*", minPartitions="5")
    assert len(rows) == 24
    assert (b"plain" in {row[3] for row in rows}) and len({row[1:3] for row in rows}) == 24
    assert read(GOLDEN / version, topic="SCHEDULE_TOPIC_XXXX")


def test_the_columns_are_those_of_the_topic_but_for_the_name_of_the_broker():
    given = {"path": str(GOLDEN / "4.9.7"), "topic": "StoreTopic", "includeInternal": "true"}
    source = RocketMQSource(given)
    assert source.schema() == RocketMQSource(given | {"nameServer": "127.0.0.1:9876"}).schema()
    for name in None, "broker-a":
        batch = only_batch(given | ({"brokerName": name} if name else {}))
        assert set(batch["brokerName"].to_pylist()) == {name}
        assert batch["storeSize"].to_pylist()[0] > 0
    kafka = only_batch(given | {"kafkaCompat": "true", "columns": "key,value,offset"})
    assert kafka.to_pylist()[0] == {"key": b"key-1 key-2", "value": b"plain", "offset": 0}


def only_batch(given):
    """As Spark has it: reader and task are pickled."""
    source = RocketMQSource(given)
    reader = pickle.loads(pickle.dumps(source.reader(source.schema())))
    (task,) = pickle.loads(pickle.dumps(reader.partitions()))
    (batch,) = reader.read(task)
    return batch


def test_what_only_a_broker_can_do_is_refused():
    given = {"path": str(GOLDEN / "4.9.7"), "topic": "StoreTopic"}
    with pytest.raises(ConfigError, match=r"stored logs are read by spark\.read"):
        RocketMQSource(given).streamReader(RocketMQSource(given).schema())
    with pytest.raises(ConfigError, match="option startingOffsets is for topics of brokers"):
        RocketMQSource(given | {"startingOffsets": "latest"}).schema()
    with pytest.raises(ConfigError, match="exactly one of the options topic and subscribePattern"):
        RocketMQSource({"path": "x"}).schema()
    with pytest.raises(ConfigError, match="mount other folders"):
        RocketMQSource(given | {"path": "s3://bucket/store"}).schema()
    with pytest.raises(ConfigError, match="did you mean topic"):
        RocketMQSource(given | {"topicc": "T"}).schema()
