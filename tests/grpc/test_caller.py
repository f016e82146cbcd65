"""The caller, and the names in its calls."""

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.grpc.caller import caller_of, client_id_of, consumer_group_of, topic_of
from sparrowmq.grpc.wire_types import message_class
from tests.grpc.scripted import ScriptedBrokers, call, caller, named


def test_caller_is_what_the_metadata_say():
    found = caller_of(call("me", **{"x-mq-language": "PYTHON"}), ScriptedBrokers())
    assert (found.client_id, found.language, found.address) == ("me", "PYTHON", "127.0.0.1:5000")


def test_a_connection_is_known_once_one_of_its_clients_is():
    first, second = ScriptedBrokers(), ScriptedBrokers()
    asked = call("one")
    caller_of(asked, first)
    caller_of(asked, second)
    assert not asked.peer.is_known()
    second.is_known = True
    assert asked.peer.is_known()
    caller_of(asked, first)
    assert asked.peer.is_known()


@pytest.mark.parametrize(("client_id", "code"), [("", 40017), ("x" * 256, 40000)])
def test_client_without_a_usable_id_is_refused(client_id, code):
    with pytest.raises(RemoteError) as caught:
        caller_of(call(client_id), ScriptedBrokers())
    assert caught.value.code == code


@pytest.mark.parametrize("name", ["", "  ", "a b", "TBW102", "rmq_sys_x", "x" * 128])
def test_topic_with_a_bad_or_reserved_name_is_refused(name):
    with pytest.raises(RemoteError) as caught:
        topic_of(named(name))
    assert caught.value.code == 40002


def test_group_with_a_bad_name_is_refused():
    with pytest.raises(RemoteError) as caught:
        consumer_group_of(named("a b"))
    assert caught.value.code == 40003


def test_names_have_their_namespace():
    resource = message_class("Resource")(resource_namespace="shop", name="orders")
    assert topic_of(resource) == consumer_group_of(resource) == "shop%orders"


def test_clients_of_two_accounts_with_one_id_are_two():
    assert client_id_of("", "me") == "me"
    ids = {client_id_of(account, client_id) for account in ("a", "ab", "") for client_id in ("b", "me")}
    assert len(ids) == 6
    brokers = ScriptedBrokers()
    brokers.account = "writer"
    assert caller(brokers, "me").client_id == client_id_of("writer", "me")
