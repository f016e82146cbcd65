"""sparrowmq.spark.worker: what a process keeps."""

import pytest

from sparrowmq.errors import NameServerUnreachable
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.worker import connect, network_of


def test_a_process_has_one_network_for_the_same_brokers(peer):
    assert network_of(peer.source(topic="T")) is network_of(peer.sink(topic="U"))
    assert network_of(peer.source(topic="T")) is not network_of(peer.source(topic="T", accessKey="a", secretKey="b"))


def test_another_token_means_other_connections(peer):
    one, two = ({"accessKey": "a", "secretKey": "b", "securityToken": token} for token in "12")
    assert network_of(peer.source(topic="T", **one)) is not network_of(peer.source(topic="T", **two))


def test_options_say_who_signs_and_how_often_to_try_again(peer):
    peer.store("T", 0, [])
    with connect(peer.source(topic="T", accessKey="me", secretKey="mine", securityToken="t")) as network:
        network.route("T")
    _, fields = peer.asked[-1]
    assert (fields["AccessKey"], fields["SecurityToken"], len(fields["Signature"])) == ("me", "t", 28)
    impatient = {"nameServer": "127.0.0.1:1", "topic": "T", "retries": "2", "retryIntervalMs": "1"}
    with connect(parse(SourceOptions, impatient)) as network, pytest.raises(NameServerUnreachable):
        network.retrying(network.topics)
