import pytest

from sparrowmq.admin import catalogue as messages
from sparrowmq.admin.servers import Servers
from sparrowmq.client.client import connect
from sparrowmq.client.cluster.network import Network
from sparrowmq.errors import InvalidMessage, RemoteError, RemoteProtocolError
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.messages.message_id import parse_offset_id
from sparrowmq.protocol.requests.headers import PullMessageReply, QueryMessage
from sparrowmq.remoting.handler import Reply
from tests.client.consuming.test_pulling import rec
from tests.client.scripted import Scripted

QUEUE = MessageQueue("orders", "broker-0", 0)


async def test_messages_are_found_by_place_time_and_page(two, admin):
    await admin.create_topic("orders", queues=1)
    async with connect(two.namesrv) as mq:
        sent = [await mq.send("orders", b"%d" % number, tag="AB"[number % 2], queue=QUEUE) for number in range(4)]
    servers, address = admin.servers, two.brokers[0].address
    place = parse_offset_id(sent[2].offset_msg_id)
    found = await messages.view_message(servers, place.store_host, place.physical_offset)
    assert found.body == b"2"
    ends = (
        await messages.min_offset(servers, address, QUEUE),
        await messages.max_offset(servers, address, QUEUE),
    )
    assert ends == (0, 4)
    assert await messages.offset_since(servers, address, QUEUE, found.store_timestamp_ms) <= 2
    page = await messages.pull_page(servers, address, QUEUE, 0, expression="B")
    assert [each.body for each in page.messages] == [b"1", b"3"]
    assert (page.code, page.next_offset, page.max_offset) == (0, 4, 4)
    with pytest.raises(InvalidMessage, match=r"write 'A \|\| B' for"):
        await messages.pull_page(servers, address, QUEUE, 0, expression="A|B")
    page = await messages.pull_page(servers, address, QUEUE, 4)
    assert (page.code, page.messages) == (ResponseCode.PULL_NOT_FOUND, [])


async def test_a_key_that_no_message_has_is_an_error(two, admin):
    await admin.create_topic("orders", queues=1)
    request = QueryMessage("orders", "absent", 32, 0, (1 << 63) - 1)
    with pytest.raises(RemoteError) as caught:
        await messages.query_messages(admin.servers, two.brokers[0].address, request)
    assert caught.value.code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize("code", [ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY])
@pytest.mark.parametrize("following", [7, 6, -1, 1 - (1 << 63)])
async def test_page_that_leads_nowhere_is_an_error(code, following):
    """printMsg and the like would ask for the same page without end."""
    async with Scripted() as peer, Network(peer.address) as network:
        reply = PullMessageReply(0, following, 0, 100)
        peer.usual[RequestCode.PULL_MESSAGE] = lambda _: Reply(code, reply, body=rec(7))
        with pytest.raises(RemoteProtocolError, match=f"from offset 7 on, and names {following} as the next"):
            await messages.pull_page(Servers(network, 5.0), peer.address, QUEUE, 7)
