import pytest

from sparrowmq.client.consuming.offset_store import BrokerOffsets, LocalOffsets
from sparrowmq.errors import A_SLAVE, BadStore, RemoteError
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.headers import OffsetReply, UpdateConsumerOffset
from sparrowmq.protocol.requests.offset_bodies import ConsumerOffsets
from sparrowmq.remoting.handler import Reply
from tests.client.consuming.test_held_locks import brokers as brokers

ONE, TWO = (MessageQueue("t", "broker-a", number) for number in range(2))
QUERY, UPDATE = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET


@pytest.fixture
def offsets(peer, brokers) -> BrokerOffsets:
    peer.usual[UPDATE] = lambda _: Reply()
    return BrokerOffsets("g", brokers)


async def test_a_broker_knows_where_the_group_stands_or_that_it_never_began(peer, offsets):
    peer.script(QUERY, Reply(header=OffsetReply(offset=42)), Reply(ResponseCode.QUERY_NOT_FOUND))
    assert await offsets.read(ONE) == 42
    assert await offsets.read(ONE) is None


async def test_any_other_answer_is_an_error(peer, offsets):
    peer.script(QUERY, Reply(ResponseCode.SYSTEM_ERROR))
    with pytest.raises(RemoteError):
        await offsets.read(ONE)


async def test_only_what_changed_is_committed(peer, offsets):
    await offsets.commit({ONE: 1, TWO: 2})
    await offsets.commit({ONE: 1, TWO: 3})
    offsets.forget(ONE)
    await offsets.commit({ONE: 1, TWO: 3})
    sent = [command.header(UpdateConsumerOffset) for command in peer.requests(UPDATE)]
    assert [(each.queue_id, each.commit_offset) for each in sent] == [(0, 1), (1, 2), (1, 3), (0, 1)]


async def test_what_was_not_taken_is_committed_again(peer, offsets, caplog):
    peer.script(UPDATE, Reply(ResponseCode.SYSTEM_ERROR, remark="not now"))
    await offsets.commit({ONE: 1})
    assert "cannot commit offset 1" in caplog.text and "not now" in caplog.text
    await offsets.commit({ONE: 1, MessageQueue("t", "nowhere", 0): 5})
    assert len(peer.requests(UPDATE)) == 2


async def test_an_outage_is_one_line_for_a_queue(peer, offsets, caplog):
    peer.script(UPDATE, *[Reply(ResponseCode.SYSTEM_ERROR, remark="not now")] * 3)
    for _ in range(4):  # the last one is taken
        await offsets.commit({ONE: 1})
    peer.script(UPDATE, Reply(ResponseCode.SYSTEM_ERROR, remark="not now"))
    await offsets.commit({ONE: 2})
    lines = [record.message for record in caplog.records if "cannot commit" in record.message]
    assert [line[:22] for line in lines] == ["cannot commit offset 1", "cannot commit offset 2"]


@pytest.fixture
async def away(peer, offsets):
    """Offset 9 could not be committed: the broker left when it was asked."""
    peer.usual[UPDATE] = lambda _: [session.close() for session in peer.sessions] and None
    await offsets.commit({ONE: 9})
    offsets.forget(ONE)
    peer.usual[UPDATE] = lambda _: Reply()
    return offsets


async def test_what_could_not_be_committed_is_gone_on_with_when_the_queue_comes_back(peer, away):
    peer.usual[QUERY] = lambda _: Reply(header=OffsetReply(offset=4))
    peer.usual[RequestCode.GET_MAX_OFFSET] = lambda _: Reply(header=OffsetReply(offset=9))
    assert await away.read(ONE) == 4
    assert await away.resume(ONE) == 9
    assert await away.resume(ONE) == 4, "it counts once; what follows is committed"


async def test_what_a_slave_refused_is_gone_on_with_too(peer, offsets):
    """Its master is elsewhere now, and the broker was the master before."""
    peer.script(UPDATE, Reply(ResponseCode.SLAVE_NOT_AVAILABLE, remark=f"the offset is not committed: {A_SLAVE}"))
    assert list(await offsets.commit({ONE: 9})) == [ONE]
    peer.usual[QUERY] = lambda _: Reply(header=OffsetReply(offset=4))
    peer.usual[RequestCode.GET_MAX_OFFSET] = lambda _: Reply(header=OffsetReply(offset=9))
    assert await offsets.resume(ONE) == 9


async def test_whoever_went_further_meanwhile_is_right(peer, away):
    peer.usual[QUERY] = lambda _: Reply(header=OffsetReply(offset=10))
    assert await away.resume(ONE) == 10


async def test_a_broker_that_lost_its_store_is_believed(peer, away):
    peer.usual[QUERY] = lambda _: Reply(ResponseCode.QUERY_NOT_FOUND)
    peer.usual[RequestCode.GET_MAX_OFFSET] = lambda _: Reply(header=OffsetReply(offset=3))
    assert await away.resume(ONE) is None


async def test_an_operators_word_counts_more_than_what_could_not_be_committed(peer, away):
    peer.usual[QUERY] = lambda _: Reply(header=OffsetReply(offset=0))
    away.moved(ONE)
    assert await away.resume(ONE) == 0


async def test_what_a_broker_refuses_is_not_remembered(peer, offsets):
    peer.script(UPDATE, Reply(ResponseCode.SYSTEM_ERROR, remark="no such group"))
    peer.usual[QUERY] = lambda _: Reply(header=OffsetReply(offset=0))
    await offsets.commit({ONE: 9})
    assert await offsets.resume(ONE) == 0


async def test_a_commit_that_did_not_last_is_made_again(peer, offsets, caplog):
    peer.script(QUERY, Reply(header=OffsetReply(offset=5)), Reply(header=OffsetReply(offset=4)))
    await offsets.commit_again(ONE, 5)
    assert not peer.requests(UPDATE)
    await offsets.commit_again(ONE, 5)
    assert peer.requests(UPDATE)[0].header(UpdateConsumerOffset).commit_offset == 5
    peer.script(QUERY, Reply(ResponseCode.SYSTEM_ERROR, remark="not now"))
    await offsets.commit_again(ONE, 5)
    assert "cannot commit offset 5" in caplog.text


async def test_an_offset_of_0_can_be_told_from_none(peer, offsets, tmp_path):
    table = Reply(body=ConsumerOffsets({"t@g": {0: 0}, "t@h": {1: 0}}).encode())
    peer.usual[RequestCode.GET_ALL_CONSUMER_OFFSET] = lambda _: table
    peer.usual[QUERY] = lambda _: Reply(header=OffsetReply(offset=0))
    assert await offsets.has(ONE) and not await offsets.has(TWO)
    local = LocalOffsets(tmp_path / "offsets.json")
    await local.commit({ONE: 0})
    await local.commit_again(ONE, 0)
    assert await local.has(ONE) and not await local.has(TWO)


@pytest.mark.covers("S-CONS-05")
async def test_local_offsets_outlast_the_program_in_javas_form(tmp_path):
    file = tmp_path / "client" / "group" / "offsets.json"
    offsets = LocalOffsets(file)
    assert await offsets.read(ONE) is None
    await offsets.commit({ONE: 5, TWO: 6})
    await offsets.commit({ONE: 7})
    assert await LocalOffsets(file).read(ONE) == 7
    assert await LocalOffsets(file).read(TWO) == 6
    assert b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"t"}:7' in file.read_bytes()
    offsets.forget(ONE)
    assert await offsets.read(ONE) == 7


async def test_a_file_of_java_is_read(tmp_path):
    file = tmp_path / "offsets.json"
    file.write_text('{\n\t"offsetTable":{{\n\t\t"brokerName":"broker-a",\n\t\t"queueId":0,\n\t\t"topic":"t"\n\t}:9}\n}')
    assert await LocalOffsets(file).read(ONE) == 9


async def test_a_broken_file_is_an_error_and_no_new_beginning(tmp_path):
    file = tmp_path / "offsets.json"
    file.write_text("{")
    with pytest.raises(BadStore):
        await LocalOffsets(file).read(ONE)


async def test_a_file_that_cannot_be_written_is_logged(tmp_path, caplog):
    offsets = LocalOffsets(tmp_path / "folder" / "offsets.json")
    await offsets.read(ONE)
    (tmp_path / "folder").write_text("in the way")
    await offsets.commit({ONE: 1})
    assert "messages come twice" in caplog.text
