import pytest

from sparrowmq.cli.mqadmin import java
from sparrowmq.errors import (
    BrokerUnreachable,
    ConfigError,
    ConnectionClosed,
    NameServerUnreachable,
    RemoteError,
    RequestTimeout,
)
from sparrowmq.protocol.requests.admin_headers import DeleteTopic, GetTopicStats

FAQ = "\nFor more information, please visit the url, http://rocketmq.apache.org/docs/faq/"


def test_a_brokers_refusal_names_the_broker_for_some_requests_only() -> None:
    error = RemoteError(1, "no")
    of_broker = java.failure_from(error, GetTopicStats("T"), "a:1")
    of_client = java.failure_from(error, DeleteTopic("T"), "a:1")
    client = "org.apache.rocketmq.client.exception"
    assert str(of_broker) == f"{client}.MQBrokerException: CODE: 1  DESC: no BROKER: a:1{FAQ}"
    assert str(of_client) == f"{client}.MQClientException: CODE: 1  DESC: no{FAQ}"
    assert (of_broker.is_of_broker, of_client.is_of_broker, of_client.code, of_client.remark) == (
        True,
        False,
        1,
        "no",
    )


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (BrokerUnreachable("a:1", "refused"), "RemotingConnectException: connect to a:1 failed"),
        (
            NameServerUnreachable("a:1;b:2", "refused"),
            "RemotingConnectException: connect to [a:1;b:2] failed",
        ),
        (
            RequestTimeout("a:1", "GetRoute", 5.0),
            "RemotingTimeoutException: wait response on the channel <a:1> timeout, 5000(ms)",
        ),
        (ConnectionClosed("a:1"), "RemotingSendRequestException: send request to <a:1> failed"),
    ],
)
def test_a_network_that_fails_is_told_in_javas_words(error: Exception, words: str) -> None:
    assert str(java.failure_from(error)) == f"org.apache.rocketmq.remoting.exception.{words}"  # type: ignore[arg-type]


def test_what_java_does_not_know_keeps_our_words() -> None:
    assert "tell me" in str(java.failure_from(ConfigError("tell me")))


def test_a_topic_without_a_route_points_to_its_own_page() -> None:
    assert str(java.no_route_failure("T")).endswith(
        "topic: T\nSee http://rocketmq.apache.org/docs/faq/ for further details."
    )
