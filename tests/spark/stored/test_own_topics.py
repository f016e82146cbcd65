"""sparrowmq.spark.source.log_reader: a pattern leaves out what brokers made for themselves."""

import json

import pytest

pytest.importorskip("pyspark")

from sparrowmq.spark.source.log_reader import cluster_names
from tests.store.stores import put


def test_topics_that_a_broker_made_for_itself_are_meant_by_their_names_only(stores, read):
    store = stores.open()
    own = ["shop-cluster_REPLY_TOPIC", "shop-cluster", "broker-a"]
    for topic in (*own, "Orders", "Orders"):
        put(store, topic.encode(), topic=topic)
    store.close()
    path = stores.settings.path

    def meant(**given):
        return {row[0] for row in read(path, subscribePattern=".*", **given)}

    assert meant() == {"Orders", "shop-cluster", "broker-a"}, "a log alone has no names of clusters and brokers"
    (path / "config").mkdir(exist_ok=True)
    (path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {name: {} for name in own}}))
    assert meant() == {"Orders", "broker-a"}
    assert meant(brokerName="broker-a") == {"Orders"}
    assert {row[0] for row in read(path, topic=",".join(own), brokerName="broker-a")} == set(own)


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{"])
def test_without_a_list_of_topics_no_cluster_is_known(tmp_path, content):
    (tmp_path / "config").mkdir()
    if content is not None:
        (tmp_path / "config" / "topics.json").write_bytes(content)
    assert cluster_names(str(tmp_path / "commitlog" / "00000000000000000000")) == frozenset()
