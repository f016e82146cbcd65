"""sparrowmq.spark.sink.exactly_once: a query keeps the broker that decides about its batches."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.sink.exactly_once import DECIDER_FILE, offsets_digest, with_stream_decider, with_write_decider
from tests.spark.peer import BROKER

ONCE = {"topic": "T", "deliveryGuarantee": "exactly_once"}


@pytest.fixture
def checkpoint(tmp_path):
    """A folder as Spark makes it before it asks for a writer."""
    (tmp_path / "metadata").write_text('{"id":"1"}')
    return tmp_path


@pytest.fixture
def once(peer):
    peer.store("T", 0, [])

    def once(**given):
        return peer.sink(**ONCE | given)

    yield once
    from sparrowmq.spark.worker import _networks

    for kept in _networks.values():
        kept.forget()


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_the_first_broker_of_the_topic_is_chosen_once_for_the_life_of_a_query(once, checkpoint, form):
    chosen = with_stream_decider(once(), form.format(checkpoint))
    assert chosen.broker_name == BROKER
    elsewhere = once(nameServer="127.0.0.1:1", **{"fetchOffset.numRetries": "0"})
    assert with_stream_decider(elsewhere, str(checkpoint)).broker_name == BROKER, "no broker is asked again"


def test_a_new_broker_with_an_earlier_name_changes_nothing(once, checkpoint):
    (checkpoint / DECIDER_FILE).write_text('{"broker":"z"}')
    assert with_stream_decider(once(), str(checkpoint)).broker_name == "z"


def test_another_broker_than_the_one_that_has_decided_is_refused(once, checkpoint):
    assert with_stream_decider(once(brokerName="b"), str(checkpoint)).broker_name == "b"
    assert with_stream_decider(once(), str(checkpoint)).broker_name == "b"
    with pytest.raises(ConfigError, match="broker b has decided about the batches of this checkpoint"):
        with_stream_decider(once(brokerName="c"), str(checkpoint))


@pytest.mark.parametrize("place", [None, "", "absent", "nothing://here/there"])
def test_a_stream_whose_checkpoint_cannot_be_reached_needs_the_name(once, tmp_path, place):
    place = str(tmp_path / place) if place == "absent" else place
    with pytest.raises(ConfigError, match="name the broker that decides by the option brokerName"):
        with_stream_decider(once(), place)
    assert with_stream_decider(once(brokerName="b"), place).broker_name == "b"


def test_a_damaged_file_is_not_replaced(once, checkpoint):
    (checkpoint / DECIDER_FILE).write_text('{"bro')
    with pytest.raises(ConfigError, match="is damaged"):
        with_stream_decider(once(), str(checkpoint))


def test_a_write_chooses_a_broker_unless_it_may_be_repeated_by_its_name(once):
    assert with_write_decider(once()).broker_name == BROKER
    assert with_write_decider(once(writeId="w", brokerName="b")).broker_name == "b"
    with pytest.raises(ConfigError, match="writeId=w must come to the same broker each time"):
        with_write_decider(once(writeId="w"))


def test_rows_whose_topics_a_column_names_need_the_name(peer, checkpoint):
    options = peer.sink(deliveryGuarantee="exactly_once")
    with pytest.raises(ConfigError, match="topics that a column names"):
        with_stream_decider(options, str(checkpoint))
    assert not (checkpoint / DECIDER_FILE).exists()


def test_a_batch_is_named_by_its_file_of_offsets(checkpoint):
    offsets = checkpoint / "offsets"
    offsets.mkdir()
    assert offsets_digest(str(checkpoint), 7) is None and offsets_digest(None, 7) is None
    (offsets / "7").write_text('v1\n{"batchTimestampMs":1}\n{"v":1}')
    first = offsets_digest(str(checkpoint), 7)
    assert first is not None and offsets_digest(f"file:{checkpoint}", 7) == first
    (offsets / "7").write_text('v1\n{"batchTimestampMs":2}\n{"v":1}')
    assert offsets_digest(str(checkpoint), 7) not in (None, first)


def test_other_guarantees_need_no_broker(peer):
    assert with_stream_decider(peer.sink(topic="T"), None).broker_name is None
    assert with_write_decider(peer.sink(topic="T")).broker_name is None
