from typing import Any

import pytest

from sparrowmq.admin import catalogue as brokers
from sparrowmq.client.client import connect
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.requests.admin_headers import QueryConsumeQueue
from sparrowmq.protocol.wire.header import NoFields
from sparrowmq.remoting.request_in_flight import Response


async def test_a_changed_setting_is_in_effect(two, admin):
    address = two.brokers[0].address
    await brokers.change_broker_settings(admin.servers, address, {"fileReservedTime": "71"})
    assert (await brokers.broker_settings(admin.servers, address))["fileReservedTime"] == "71"


async def test_producers_and_their_messages_are_found_at_the_broker(two, admin):
    await admin.create_topic("orders", queues=1)
    async with connect(two.namesrv) as mq:
        sent = await mq.send("orders", b"x")
        at = next(each.address for each in two.brokers if each.settings.name == sent.queue.broker_name)
        (entry,) = (await brokers.producers(admin.servers, at))["CLIENT_INNER_PRODUCER"]
        assert (entry.client_id, entry.language) == (mq.client_id, "PYTHON")
        connections = await brokers.producer_connections(admin.servers, at, "CLIENT_INNER_PRODUCER")
        assert [each.client_id for each in connections.connection_set] == [mq.client_id]
    found = await brokers.queue_entries(admin.servers, at, QueryConsumeQueue("orders", 0, 0, 10))
    assert (found.min_queue_index, found.max_queue_index) == (0, 1)


@pytest.mark.parametrize("remark", ["Index 7 of 0@orders is not exist!", None])
async def test_a_success_without_entries_is_an_error_with_the_brokers_reason(remark):
    """Apache's broker answers so for an index that a queue does not have."""

    class Apache:
        async def ask(self, address: str, request: Any, body: bytes = b"", **how: object) -> Any:
            return Response(0, NoFields(), remark, b"", 407)

    apache: Any = Apache()
    with pytest.raises(RemoteError, match="Index 7 of 0@orders is not exist!"):
        await brokers.queue_entries(apache, "10.0.0.1:10911", QueryConsumeQueue("orders", 0, 7, 10))


async def test_clean_up_requests_are_accepted(two, admin):
    for clean in (brokers.clean_expired_queues, brokers.clean_unused_topics, brokers.delete_expired_log):
        await clean(admin.servers, two.brokers[0].address)
