"""Transactions of one account, and what other accounts try with them."""

from contextlib import asynccontextmanager

import pytest

from sparrowmq.broker.transactions.transactions import TransactionRights
from sparrowmq.errors import AccessDenied
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message_id import parse_offset_id
from sparrowmq.protocol.requests.client_bodies import Heartbeat, ProducerBeat
from sparrowmq.protocol.requests.headers import EndTransaction, HeartBeat
from sparrowmq.protocol.signature import signer
from sparrowmq.remoting.pool import Pool
from tests.broker.conftest import until
from tests.broker.live import live_broker, pull_request, send_request

ACCOUNTS = """
accounts:
  - {accessKey: payments, secretKey: 12345678, topicPerms: [orders=PUB], defaultTopicPerm: DENY}
  - {accessKey: partners, secretKey: 12345678, topicPerms: [orders=PUB], defaultTopicPerm: DENY}
  - {accessKey: thieves, secretKey: 12345678, defaultTopicPerm: DENY, defaultGroupPerm: DENY}
  - {accessKey: operators, secretKey: 12345678, admin: true}
"""
HALF = {"TRAN_MSG": "true", "PGROUP": "producers", "UNIQ_KEY": "u", "TRAN_OWNER": "thieves"}
COMMIT, ROLLBACK = 8, 12
MAY = {"payments": True, "partners": True, "thieves": False, "operators": True}


def end(reply, how):
    offset = parse_offset_id(reply.msg_id).physical_offset
    return EndTransaction("producers", reply.queue_offset, offset, how, msg_id="u")


@asynccontextmanager
async def company(tmp_path, **more):
    """A broker with accounts; `await connect(account)` returns a session and what was pushed down it."""
    file, pools = tmp_path / "plain_acl.yml", []
    file.write_text(ACCOUNTS)

    async def connect(account):
        pushed = []
        pool = Pool(SystemClock(), lambda _, command: pushed.append(command), sign=signer(account, "12345678"))
        pools.append(pool)
        return await pool.session(live.broker.address), pushed

    async with live_broker(tmp_path / "store", acl=True, acl_file=file, **more) as live:
        yield live, connect
        for pool in pools:
            pool.close()


async def announce(session, client_id="me"):
    await session.call(HeartBeat(), Heartbeat(client_id, [ProducerBeat("producers")]).encode())


async def bodies(session):
    found = await session.call(pull_request("orders"), accept={19, 20, 21})
    return [record.decode(each).body for each in record.walk(memoryview(found.body))]


async def test_only_the_account_that_began_a_transaction_ends_it(tmp_path):
    async with company(tmp_path) as (_, connect):
        (owner, _), (operator, _) = await connect("payments"), await connect("operators")
        first, second = [(await owner.call(send_request(properties=HALF), body)).header for body in (b"one", b"two")]
        for account, words in (
            ("thieves", "No default permission for topic:orders"),
            ("partners", "another"),
        ):
            session, _ = await connect(account)
            for how in (COMMIT, ROLLBACK):
                with pytest.raises(AccessDenied, match=words):
                    await session.call(end(first, how))
        await owner.call(end(first, COMMIT))
        await operator.call(end(second, COMMIT))
        assert await bodies(operator) == [b"one", b"two"]


async def test_an_account_that_announces_a_group_first_keeps_no_other_account_out(tmp_path, clock):
    async with company(tmp_path, clock=clock, transaction_interval_ms=10_000) as (_, connect):
        (thief, stolen), (owner, asked) = await connect("thieves"), await connect("payments")
        await announce(thief)
        await announce(owner)
        await owner.call(send_request(properties=HALF, born_timestamp=clock.now_ms()), b"secret")
        await clock.advance(30)
        await until(lambda: bool(asked))
    assert stolen == []


async def test_the_question_goes_to_the_owner_alone(tmp_path, clock):
    async with company(tmp_path, clock=clock, transaction_interval_ms=10_000) as (_, connect):
        (owner, asked), (thief, stolen) = await connect("payments"), await connect("thieves")
        await announce(thief)
        await owner.call(send_request(properties=HALF, born_timestamp=clock.now_ms()), b"secret")
        await clock.advance(30)
        thief.close()
        await until(lambda: thief.closed)
        assert stolen == [] == asked
        await announce(owner)
        await clock.advance(10)
        await until(lambda: bool(asked))
    question = record.decode(asked[0].body)
    assert asked[0].code == RequestCode.CHECK_TRANSACTION_STATE
    assert question.body == b"secret" and "TRAN_OWNER" not in question.properties


async def test_a_store_that_was_without_accounts_asks_as_before(tmp_path, clock):
    async with company(tmp_path, clock=clock, transaction_interval_ms=10_000) as (_, connect):
        owner, _ = await connect("payments")
        await owner.call(send_request(properties=HALF, born_timestamp=clock.now_ms()), b"paid")
    async with live_broker(tmp_path / "store", clock=clock, transaction_interval_ms=10_000) as live:
        pushed = []
        pool = Pool(SystemClock(), lambda _, command: pushed.append(command))
        await announce(await pool.session(live.broker.address))
        await clock.advance(20)
        await until(lambda: bool(pushed))
        pool.close()


@pytest.mark.parametrize(
    ("account", "owner", "topic", "allowed"),
    [
        (None, "payments", "orders", True),
        ("payments", "payments", "orders", True),
        ("partners", "payments", "orders", False),
        ("operators", "payments", "orders", False),
        ("partners", None, "orders", True),
        ("partners", "a former key", "orders", True),
        ("thieves", None, "orders", False),
        ("thieves", "a former key", "orders", False),
        ("thieves", "thieves", "orders", False),
        ("a former key", None, "orders", False),
    ],
)
def test_a_producer_is_asked_about_messages_of_its_account_that_it_may_send(account, owner, topic, allowed):
    assert TransactionRights(lambda account, topic: MAY.get(account)).may_be_asked(account, owner, topic) is allowed
