"""Headers for name servers: Java's fields, and what may be missing."""

import pytest

from sparrowmq.protocol.requests import namesrv_headers as headers
from sparrowmq.protocol.wire.header import Header, from_json
from tests.protocol.requests.wire_names import comes_back, fields_of, required_of

JAVA = [
    (headers.GetRoute, "topic acceptStandardJsonOnly"),
    (headers.GetBrokerCluster, ""),
    (headers.GetAllTopicListFromNameserver, ""),
    (headers.GetTopicsByCluster, "cluster"),
    (headers.GetSystemTopicListFromNs, ""),
    (headers.DeleteTopicInNamesrv, "topic clusterName"),
    (headers.RegisterBroker, "brokerName brokerAddr clusterName haServerAddr brokerId compressed bodyCrc32"),
    (headers.RegisterBrokerReply, "haServerAddr masterAddr"),
    (headers.UnregisterBroker, "brokerName brokerAddr clusterName brokerId"),
    (headers.QueryDataVersion, "brokerName brokerAddr clusterName brokerId"),
    (headers.QueryDataVersionReply, "changed"),
    (headers.WipeWritePermOfBroker, "brokerName"),
    (headers.WipeWritePermOfBrokerReply, "wipeTopicCount"),
    (headers.AddWritePermOfBroker, "brokerName"),
    (headers.AddWritePermOfBrokerReply, "addTopicCount"),
    (headers.PutKVConfig, "namespace key value"),
    (headers.GetKVConfig, "namespace key"),
    (headers.GetKVConfigReply, "value"),
    (headers.DeleteKVConfig, "namespace key"),
    (headers.GetKVListByNamespace, "namespace"),
    (headers.GetNamesrvConfig, ""),
]


@pytest.mark.parametrize(("kind", "names"), JAVA, ids=lambda value: getattr(value, "__name__", None))
def test_a_header_has_the_fields_of_java(kind: type[Header], names: str) -> None:
    assert fields_of(kind) >= set(names.split())
    assert comes_back(kind)


def test_a_broker_of_4_9_registers_without_the_fields_of_5() -> None:
    sent = b'{"brokerName":"a","brokerAddr":"x:1","clusterName":"c","haServerAddr":"x:2","brokerId":"0"}'
    header = from_json(headers.RegisterBroker, sent)
    assert (header.compressed, header.body_crc32, header.heartbeat_timeout_millis) == (False, 0, None)


def test_only_the_topic_of_a_route_is_needed() -> None:
    assert required_of(headers.GetRoute) == {"topic"}
