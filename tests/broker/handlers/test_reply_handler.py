"""Answers to requests: who gets them, what is kept of them, and what their sender is told."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.properties import parse, render
from sparrowmq.protocol.requests.client_bodies import Heartbeat, ProducerBeat
from sparrowmq.protocol.requests.headers import GetMaxOffset, HeartBeat, SendReply, SendReplyV2
from sparrowmq.protocol.signature import signer
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.log_limit import LINES
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Session
from tests.broker.live import BORN_MS, Live, live_broker, send_request
from tests.broker.members import Members
from tests.interop.etcd import needs_etcd

TOPIC = "DefaultCluster_REPLY_TOPIC"
ASKING = {"CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": "asker", "TTL": "3000", "MSG_TYPE": "reply"}
ALL: tuple[Any, ...] = ("answerers", TOPIC, "TBW102", 4, 0, 0, BORN_MS, 7, render(ASKING), 0, False)


@asynccontextmanager
async def asker(live: Live, code: int = 0, remark: str | None = None, client_id: str = "asker"):
    """A client on line as a producer, which answers pushes with a code; yields what was pushed to it."""
    async with connected(live, None, code, remark) as (session, pushed):
        await announce(session, client_id)
        yield pushed


@asynccontextmanager
async def connected(live: Live, account: str | None = None, code: int = 0, remark: str | None = None):
    """A connection of an account, and what was pushed down it."""
    pushed: list[Command] = []

    def hear(session: Session, command: Command) -> None:
        pushed.append(command)
        session.reply(command, code, None, remark)

    pool = Pool(SystemClock(), hear, sign=signer(account, "12345678") if account else None)
    try:
        yield await pool.session(live.broker.address), pushed
    finally:
        pool.close()


async def announce(session: Session, client_id: str = "asker", group: str = "askers") -> None:
    beat = Heartbeat(client_id, producer_data_set=[ProducerBeat(group)])
    await session.call(HeartBeat(), beat.encode())


async def ask(session: Session) -> None:
    await session.call(send_request("prices", properties={k: v for k, v in ASKING.items() if k != "MSG_TYPE"}))


@pytest.mark.parametrize("kind", [SendReply, SendReplyV2])
async def test_an_answer_is_pushed_to_who_asked_and_kept(tmp_path, kind):
    async with live_broker(tmp_path) as live, asker(live) as pushed:
        reply = (await live.session.call(kind(*ALL), b"42")).header
        [message] = await live.messages(TOPIC)
    (push,) = pushed
    assert (push.code, bytes(push.body)) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"42")
    fields = push.ext_fields()
    assert (fields["topic"], fields["flag"], fields["bornTimestamp"]) == (TOPIC, "7", str(BORN_MS))
    assert fields["bornHost"] == message.born_host and fields["storeHost"] == message.store_host
    told = parse(fields["properties"])
    assert told.pop("PUSH_REPLY_TIME") == fields["storeTimestamp"]
    assert told == ASKING
    assert (message.body, reply.msg_id, message.properties["CORRELATION_ID"]) == (
        b"42",
        message.offset_id,
        "c-1",
    )
    assert "PUSH_REPLY_TIME" not in message.properties


async def refused(live: Live, header: SendReplyV2) -> RemoteError:
    with pytest.raises(RemoteError) as error:
        await live.session.call(header, b"42")
    return error.value


def reply_to(**properties: str) -> SendReplyV2:
    return msgspec.structs.replace(SendReplyV2(*ALL), properties=render(properties))


async def test_the_sender_of_an_answer_is_told_that_nobody_gets_it(tmp_path):
    async with live_broker(tmp_path) as live, asker(live, 1, "no time", client_id="busy"):
        gone = await refused(live, SendReplyV2(*ALL))
        nobody = await refused(live, reply_to(CORRELATION_ID="c"))
        busy = await refused(live, reply_to(REPLY_TO_CLIENT="busy"))
        stored = await live.messages(TOPIC)
    assert {gone.code, nobody.code, busy.code} == {ResponseCode.SYSTEM_ERROR}
    assert gone.remark == "push reply message fail, channel of <asker> not found."
    assert nobody.remark == "reply message properties[REPLY_TO_CLIENT] is null"
    assert busy.remark.startswith("push reply message to busy fail.") and "no time" in busy.remark
    assert len(stored) == 3, "they are kept all the same"


async def test_answers_that_nobody_waits_for_cost_few_lines(tmp_path, caplog):
    async with live_broker(tmp_path) as live:
        for _ in range(LINES + 5):
            await refused(live, SendReplyV2(*ALL))
    assert caplog.text.count("is lost") == LINES


async def test_an_answer_sets_only_the_bits_of_its_sender_in_the_system_flag(tmp_path):
    """Java's asker would look for several messages in the body of an inner batch."""
    fields = list(ALL)
    fields[5] = SysFlag.INNER_BATCH | SysFlag.COMMIT | SysFlag.MULTI_TAGS
    async with live_broker(tmp_path) as live, asker(live) as pushed:
        await live.session.call(SendReply(*fields), b"42")
        [message] = await live.messages(TOPIC)
    assert int(pushed[0].ext_fields()["sysFlag"]) == message.sys_flag == SysFlag.MULTI_TAGS


async def test_answers_need_not_be_kept(tmp_path):
    async with live_broker(tmp_path, store_replies=False) as live, asker(live) as pushed:
        reply = (await live.session.call(SendReplyV2(*ALL), b"42")).header
        assert await live.messages(TOPIC) == []
    assert len(pushed) == 1 and (reply.msg_id, reply.queue_id, reply.queue_offset) == ("0", 0, 0)


async def test_what_a_send_may_not_an_answer_may_not_either(tmp_path):
    async with live_broker(tmp_path, permission=4) as live, asker(live) as pushed:
        error = await refused(live, SendReplyV2(*ALL))
    assert error.code == ResponseCode.NO_PERMISSION and not pushed
    async with live_broker(tmp_path, max_message_bytes=1) as live, asker(live) as pushed:
        error = await refused(live, SendReplyV2(*ALL))
    assert error.code == ResponseCode.MESSAGE_ILLEGAL and not pushed


async def test_an_asker_that_reconnected_has_its_answer_on_the_new_connection(tmp_path):
    async with live_broker(tmp_path) as live, asker(live) as before, asker(live) as now:
        await live.session.call(SendReplyV2(*ALL), b"42")
    assert not before and len(now) == 1


@pytest.mark.parametrize("topic", ["orders", "%RETRY%billing", f"%RETRY%{TOPIC}", f"a%b%{TOPIC}", "made_REPLY_TOPIC"])
async def test_an_answer_to_another_topic_is_neither_stored_nor_pushed(tmp_path, topic):
    async with live_broker(tmp_path) as live, asker(live) as pushed:
        end = live.broker.store.end
        error = await refused(live, msgspec.structs.replace(SendReplyV2(*ALL), topic=topic))
        assert live.broker.store.end == end
    assert error.code == ResponseCode.NO_PERMISSION and TOPIC in error.remark and not pushed


async def test_javas_answerer_in_a_namespace_may_answer(tmp_path):
    async with live_broker(tmp_path) as live, asker(live) as pushed:
        await live.session.call(msgspec.structs.replace(SendReplyV2(*ALL), topic=f"shop%{TOPIC}"), b"42")
    assert len(pushed) == 1


async def test_the_connection_that_asked_has_the_answer_though_another_has_its_client_id(tmp_path):
    async with live_broker(tmp_path) as live, connected(live) as (session, pushed):
        await announce(session)
        async with asker(live) as another:
            await ask(session)
            await live.session.call(SendReplyV2(*ALL), b"42")
    assert len(another) == 0 and len(pushed) == 1


async def test_who_reconnects_between_question_and_answer_has_it_on_the_new_connection(tmp_path):
    async with live_broker(tmp_path) as live, connected(live) as (session, before):
        await announce(session)
        await ask(session)
        async with asker(live) as now:
            await live.session.call(SendReplyV2(*ALL), b"42")
    assert not before and len(now) == 1


async def test_an_answer_goes_to_the_connection_that_asked_though_it_announced_nothing(tmp_path):
    async with live_broker(tmp_path) as live, connected(live) as (session, pushed):
        await ask(session)
        await live.session.call(SendReplyV2(*ALL), b"42")
    assert len(pushed) == 1


ACCOUNTS = """
accounts:
  - {accessKey: the-askers, secretKey: 12345678, defaultTopicPerm: PUB|SUB}
  - {accessKey: the-answerers, secretKey: 12345678, defaultTopicPerm: PUB|SUB}
  - {accessKey: the-thieves, secretKey: 12345678, defaultTopicPerm: DENY}
"""


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("is_known", [True, False])
async def test_no_other_account_gets_an_answer_by_a_client_id(tmp_path, is_known, is_first):
    """Unless the broker does not know the request, and the other account was there before."""
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    async with (
        live_broker(tmp_path / "store", acl=True, acl_file=file) as live,
        connected(live, "the-askers") as (session, pushed),
        connected(live, "the-thieves") as (thief, stolen),
        connected(live, "the-answerers") as (answerer, _),
    ):
        both = [announce(session), announce(thief, group="thieves")]
        for each in both if is_first else reversed(both):
            await each
        if is_known:
            await ask(session)
        await answerer.call(SendReplyV2(*ALL), b"42")
    if is_known or is_first:
        assert len(pushed) == 1 and not stolen


@needs_etcd
async def test_a_master_that_was_just_elected_waits_for_the_asker(members: Members) -> None:
    await members.start(1)
    await members.leader(1)
    broker = members.member(1).broker
    assert broker is not None
    session = await members.pool.session(broker.address)
    answering = asyncio.ensure_future(session.call(SendReply(*ALL), b"42", timeout_s=10))
    await session.call(GetMaxOffset(TOPIC, 0))  # and so the broker has the answer
    async with asker(Live(broker, session, cast(Any, None))) as pushed:
        await answering
    assert len(pushed) == 1
