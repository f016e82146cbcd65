"""Headers of tools and slaves: Java's fields, and what may be missing."""

import pytest

from sparrowmq.protocol.requests import admin_headers as headers
from sparrowmq.protocol.wire.header import Header, from_json
from tests.protocol.requests.wire_names import comes_back, fields_of, required_of

JAVA = [
    (headers.GetBrokerConfig, ""),
    (headers.GetBrokerConfigReply, "version"),
    (headers.GetBrokerRuntime, ""),
    (headers.GetDiagnosis, ""),
    (
        headers.UpdateAndCreateTopic,
        "topic defaultTopic readQueueNums writeQueueNums perm topicFilterType topicSysFlag order",
    ),
    (headers.DeleteTopic, "topic"),
    (headers.GetTopicStats, "topic"),
    (headers.GetSystemTopicListFromBroker, ""),
    (headers.QueryTopicConsumeByWho, "topic"),
    (headers.UpdateAndCreateSubscriptionGroup, ""),
    (headers.DeleteSubscriptionGroup, "groupName removeOffset"),
    (headers.GetConsumeStats, "consumerGroup topic"),
    (headers.ResetOffset, "topic group timestamp isForce"),
    (headers.GetConsumerConnectionList, "consumerGroup"),
    (headers.GetProducerConnectionList, "producerGroup"),
    (headers.CloneGroupOffset, "srcGroup destGroup topic offline"),
    (headers.QueryConsumeTimeSpan, "topic group"),
    (headers.QueryCorrectionOffset, "filterGroups compareGroup topic"),
    (headers.GetBrokerConsumeStats, "isOrder"),
    (headers.GetAllProducers, ""),
    (headers.ViewBrokerStats, "statsName statsKey"),
    (headers.QueryConsumeQueue, "topic queueId index count consumerGroup"),
    (headers.CleanExpiredConsumeQueue, ""),
    (headers.CleanUnusedTopic, ""),
    (headers.DeleteExpiredCommitLog, ""),
    (headers.GetAllTopicConfig, ""),
    (headers.GetAllTopicConfigReply, ""),
    (headers.GetAllSubscriptionGroup, ""),
    (headers.GetAllSubscriptionGroupReply, ""),
    (headers.GetAllConsumerOffset, ""),
    (headers.GetAllDelayOffset, ""),
]


@pytest.mark.parametrize(("kind", "names"), JAVA, ids=lambda value: getattr(value, "__name__", None))
def test_a_header_has_the_fields_of_java(kind: type[Header], names: str) -> None:
    assert fields_of(kind) >= set(names.split())
    assert comes_back(kind)


@pytest.mark.covers("S-ROUTE-07")
def test_a_tool_creates_a_topic_with_its_queues_and_permission() -> None:
    sent = b'{"topic":"T","defaultTopic":"TBW102","readQueueNums":"8","writeQueueNums":"8","perm":"6","order":"false"}'
    header = from_json(headers.UpdateAndCreateTopic, sent)
    assert (header.read_queue_nums, header.perm, header.order, header.force) == (8, 6, False, None)


def test_4_9_resets_a_group_without_naming_a_queue() -> None:
    assert required_of(headers.ResetOffset) == {"topic", "group", "timestamp", "isForce"}
