"""sparrowmq.spark.repeats: what was stored twice is seen once."""

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.repeats import without_repeats

pytestmark = pytest.mark.timeout(240)


def test_of_a_table_each_id_is_left_once(spark):
    rows = spark.createDataFrame([("a", 1), ("b", 2), ("a", 3)], "msgId string, n int")
    assert sorted(row.msgId for row in without_repeats(rows).collect()) == ["a", "b"]
    with pytest.raises(ConfigError, match="the rows need msgId; read these columns"):
        without_repeats(rows.select("n"))


@pytest.mark.slow
def test_of_a_stream_each_id_is_left_once_whatever_batch_it_is_in(spark, peer, tmp_path):
    def store(*names):
        peer.store("T", 0, [name.encode() for name in names], lambda at: f"UNIQ_KEY\x01{names[at % 3]}\x02".encode())

    store("a", "b", "a")
    options = {"nameServer": peer.address, "topic": "T", "startingOffsets": "earliest"}
    stream = without_repeats(spark.readStream.format("rocketmq").options(**options).load())
    seen: list[str] = []
    for _ in range(2):
        writing = stream.writeStream.foreachBatch(lambda rows, _: seen.extend(row.msgId for row in rows.collect()))
        writing.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination(60)
        store("b", "c", "c")
    assert sorted(seen) == ["a", "b", "c"]
    with pytest.raises(ConfigError, match="storeTimestamp"):
        without_repeats(stream.select("msgId"))
