"""Access control as a broker's settings have it, seen from outside."""

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from sparrowmq.broker.access_control import AccessControl, sign_of
from sparrowmq.broker.broker import Broker
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.errors import AccessDenied, ConfigError, RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.requests.admin_headers import DeleteAclConfig, GetBrokerRuntime, UpdateAndCreateTopic
from sparrowmq.protocol.requests.headers import (
    CommitBatch,
    ConsumerSendMsgBack,
    GetEarliestMsgStoretime,
    GetMaxOffset,
    GetMinOffset,
    HeartBeat,
    LitePullMessage,
    LockBatchMq,
    QueryConsumerOffset,
    QueryMessage,
    SearchOffset,
    StageBatch,
    UnlockBatchMq,
    UpdateConsumerOffset,
    ViewMessage,
)
from sparrowmq.protocol.requests.pop_headers import Notification
from sparrowmq.protocol.signature import signer
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.quota_rules import parse
from sparrowmq.settings.settings import build
from sparrowmq.testing.clock import ManualClock
from tests.auth.asked import ADMIN, SAMPLE, USER, beat, locks
from tests.broker.live import SUSPEND, live_broker, pull_request, send_request
from tests.broker.pop_live import pop_request


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "plain_acl.yml"
    path.write_text(SAMPLE)
    return path


def control(**settings) -> AccessControl:
    return AccessControl(BrokerSettings(**settings), lambda offset: None)


class Pools:
    """Sessions to one address in the name of several people."""

    def __init__(self, address):
        self._address = address
        self._pools = []

    async def session(self, *credentials):
        pool = Pool(SystemClock(), sign=signer(*credentials) if credentials else None)
        self._pools.append(pool)
        return await pool.session(self._address)

    def close(self):
        for pool in self._pools:
            pool.close()


@pytest.fixture
async def people():
    made = []

    def people(broker):
        made.append(Pools(broker.address))
        return made[-1]

    yield people
    for each in made:
        each.close()


def test_nobody_is_asked_unless_it_is_switched_on(file):
    off = control(acl_file=file)
    assert off.guard is None and off.files is None and not off.part().chores
    on = control(acl=True, acl_file=file)
    assert on.guard is not None and on.files is not None and on.part().chores


def test_the_files_of_a_home_are_taken(tmp_path, file):
    (tmp_path / "conf").mkdir()
    file.rename(tmp_path / "conf" / "plain_acl.yml")
    files = control(acl=True, home=tmp_path).files
    assert files is not None and "RocketMQ" in files.current.by_key


def test_without_a_place_of_the_accounts_the_start_ends():
    with pytest.raises(ConfigError, match="ROCKETMQ_HOME"):
        control(acl=True)


def test_a_check_of_ones_own_ends_the_start_with_advice():
    with pytest.raises(ConfigError, match="Leave the key out"):
        build(BrokerSettings, {"aclEnable": "true", "aclCheck": "plain;office:Hours"}, "broker.conf")


async def test_with_a_broken_file_the_broker_does_not_start(tmp_path, file):
    file.write_text(SAMPLE.replace("accessKey: RocketMQ", "accessKey: short"))
    with pytest.raises(ConfigError, match=r"plain_acl.yml: account 'short': its accessKey has 5"):
        async with Broker(BrokerSettings(port=0, store_path=tmp_path / "s", acl=True, acl_file=file)):
            pass


async def test_a_public_address_needs_access_control_or_the_operators_word(tmp_path, file):
    usual = {"port": 0, "store_path": tmp_path / "s", "commit_log_file_bytes": 1 << 20, "bind": "0.0.0.0"}
    async with Broker(BrokerSettings(**usual, acl=True, acl_file=file)):
        pass
    with pytest.raises(ConfigError, match="aclEnable=true"):
        async with Broker(BrokerSettings(**usual)):
            pass


@pytest.mark.covers("S-ACL-01")
@pytest.mark.covers("S-ACL-10")
async def test_the_user_of_the_sample_may_send_to_one_topic_only(tmp_path, file, people):
    async with live_broker(tmp_path / "stores", acl=True, acl_file=file) as live:
        who = people(live.broker)
        nobody, user = await who.session(), await who.session(*USER)
        with pytest.raises(AccessDenied, match="No accessKey is configured"):
            await nobody.call(send_request("topicB"))
        placed = await user.call(send_request("topicB"), b"hello")
        for topic in ("topicA", "topicC", "topicD"):
            with pytest.raises(AccessDenied, match=f"topic:{topic}"):
                await user.call(send_request(topic))
        with pytest.raises(AccessDenied, match="code=28"):
            await user.call(GetBrokerRuntime())
        await (await who.session(*ADMIN)).call(GetBrokerRuntime())
        found = await user.call(pull_request("topicB", placed.header.queue_id, consumer_group="groupB"))
        assert b"hello" in found.body
        with pytest.raises(AccessDenied, match="group:groupA"):
            await user.call(pull_request("topicB", placed.header.queue_id, consumer_group="groupA"))
        with pytest.raises(AccessDenied, match="group:groupA"):
            await user.call(HeartBeat(), beat(("groupA", "topicB")))


async def test_a_message_is_read_by_its_offset_by_those_who_may_read_its_topic(tmp_path, file, people):
    async with live_broker(tmp_path / "stores", acl=True, acl_file=file) as live:
        who = people(live.broker)
        admin, user = await who.session(*ADMIN), await who.session(*USER)
        offsets = {}
        for topic in ("topicA", "topicB"):
            placed = await admin.call(send_request(topic), topic.encode())
            offsets[topic] = int(placed.header.msg_id[16:], 16)
        assert b"topicB" in (await user.call(ViewMessage(offsets["topicB"]))).body
        for named in (None, "topicB"):
            with pytest.raises(AccessDenied, match="topic:topicA"):
                await user.call(ViewMessage(offsets["topicA"], named))


async def test_keys_are_guessed_no_faster_than_the_quota_of_the_address_allows(tmp_path, file, people):
    rules = parse("address:* requests=20/m")
    async with live_broker(tmp_path / "stores", acl=True, acl_file=file, quotas=rules) as live:
        who = people(live.broker)
        admin, thief = await who.session(*ADMIN), await who.session(ADMIN[0], "guessed1")
        await admin.call(GetBrokerRuntime())
        guesses = [thief.call(GetBrokerRuntime() if number % 2 else HeartBeat(), b"{}") for number in range(100)]
        answers = await asyncio.gather(*guesses, return_exceptions=True)
        denied = [each for each in answers if isinstance(each, AccessDenied)]
        codes = [each.code for each in answers if isinstance(each, RemoteError)]
        assert 20 <= len(denied) < 30
        assert codes.count(ResponseCode.SYSTEM_BUSY) == 100 - len(denied)
        await admin.call(GetBrokerRuntime())
        with pytest.raises(RemoteError, match="the quota of address"):  # so an answer says nothing about a key
            await (await who.session(*ADMIN)).call(GetBrokerRuntime())


async def test_unknown_requests_count_for_the_quota_of_the_address(tmp_path):
    class Unknown(GetBrokerRuntime):
        code = 29_999

    async with live_broker(tmp_path, quotas=parse("address:* requests=2/h")) as live:
        asked = [live.session.call(Unknown()) for _ in range(4)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        codes = [each.code for each in answers if isinstance(each, RemoteError)]
        assert codes[0] == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert codes[2:] == [ResponseCode.SYSTEM_BUSY] * 2


READERS = """
accounts:
- {accessKey: operator, secretKey: secretOfOperator, admin: true}
- accessKey: reader-of-most
  secretKey: secretOfReader
  defaultTopicPerm: SUB
  defaultGroupPerm: SUB
  topicPerms: [orders=DENY]
"""
OPERATOR, READER = ("operator", "secretOfOperator"), ("reader-of-most", "secretOfReader")
SECRET = b"a secret of orders"
SYSTEM_TOPICS = (
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "OFFSET_MOVED_EVENT",
    "rmq_sys_wheel_timer",
    "rmq_sys_STAGED",
    "DefaultCluster_REPLY_TOPIC",
)


async def store_waiting(session, topic, due_ms):
    """Store a delayed, a timed and a half message of a topic. Returns their log offsets."""
    offsets = []
    for number, properties in enumerate(
        ({"DELAY": "18"}, {"TIMER_DELIVER_MS": str(due_ms)}, {"TRAN_MSG": "true", "PGROUP": "p"})
    ):
        flag = 4 if "TRAN_MSG" in properties else 0
        known = {"KEYS": "key", "UNIQ_KEY": f"{topic}-{number}"} | properties
        placed = await session.call(send_request(topic, 0, known, sys_flag=flag), SECRET)
        offsets.append(int(placed.header.msg_id[16:], 16))
    return offsets


async def denied(session, request, body=b""):
    with pytest.raises(AccessDenied):
        await session.call(request, body)


async def test_system_topics_show_no_messages_before_their_time_or_commit(tmp_path, file, people):
    file.write_text(READERS)
    async with live_broker(tmp_path / "stores", acl=True, acl_file=file) as live:
        who = people(live.broker)
        operator, reader = await who.session(*OPERATOR), await who.session(*READER)
        due_ms = SystemClock().now_ms() + 3_600_000
        waiting = []
        for topic in ("orders", "prices"):  # the reader may consume only the second
            waiting += await store_waiting(operator, topic, due_ms)
            at = live.broker.store.end
            stage = StageBatch(topic, 0, f"writer-{topic}", "run", 0, "attempt", 0, 1_700_000_000_000)
            await operator.call(stage, batch.encode([BatchPart(SECRET, b"UNIQ_KEY\x01u\x02")]))
            waiting.append(at)  # the record that opens the writer's run, which is of no topic
            queue = live.broker.store.queues.obtain("rmq_sys_STAGED", 0)
            waiting.append(queue.last_entry()[0])
        # A commit is a record of no topic, and a body is no record at all.
        at = live.broker.store.end
        commit = CommitBatch("writer-prices", "run", 0)
        await operator.call(commit, b'{"attempts":{"attempt":1}}')
        for offset in (*waiting, at):
            await denied(reader, ViewMessage(offset))
            await denied(reader, ConsumerSendMsgBack(offset, "own", 0))
            assert (await operator.call(ViewMessage(offset))).body
        for topic in SYSTEM_TOPICS:
            for number in (0, 17):
                await denied(reader, pull_request(topic, number))
            lite = msgspec.structs.asdict(pull_request(topic))
            await denied(reader, LitePullMessage(**lite))
            for key in ("key", "orders-0", "orders#orders-0"):
                await denied(reader, QueryMessage(topic, key, 32, 0, due_ms))
                await denied(reader, QueryMessage(topic, key, 32, 0, due_ms, unique_key_query=True))
            for ask in (GetMaxOffset, GetMinOffset, GetEarliestMsgStoretime):
                await denied(reader, ask(topic, 0))
            await denied(reader, SearchOffset(topic, 0, 0))
            await denied(reader, QueryConsumerOffset("own", topic, 0))
            await denied(reader, UpdateConsumerOffset("own", topic, 0, 1))
            await denied(reader, HeartBeat(), beat(("own", topic)))
            await denied(reader, LockBatchMq(), locks("own", topic))
        await denied(reader, HeartBeat(), beat(("CID_RMQ_SYS_TRANS", "prices")))
        await operator.call(GetMaxOffset("SCHEDULE_TOPIC_XXXX", 17))


async def test_a_body_that_resembles_a_record_is_no_record(tmp_path, file, people):
    """Its header may claim the bytes behind it, which are messages of others."""
    file.write_text(READERS.replace("SUB", "PUB|SUB"))
    async with live_broker(tmp_path / "stores", acl=True, acl_file=file) as live:
        who = people(live.broker)
        operator, reader = await who.session(*OPERATOR), await who.session(*READER)
        placed = await operator.call(send_request("prices"), b"")
        real = bytes((await operator.call(ViewMessage(int(placed.header.msg_id[16:], 16)))).body)
        placed = await operator.call(send_request("prices"), real)
        stored = (await operator.call(ViewMessage(int(placed.header.msg_id[16:], 16)))).body
        at = live.broker.store.end + bytes(stored).index(real)
        await reader.call(send_request("prices"), real[:28] + at.to_bytes(8, "big") + real[36:])
        assert (await operator.call(ViewMessage(at))).body
        with pytest.raises(AccessDenied, match="no queue has it"):
            await reader.call(ViewMessage(at))


async def test_queues_are_locked_and_unlocked_by_the_account_of_the_client_only(tmp_path, file, people):
    other = "- {accessKey: other-reader, secretKey: secretOfOther, defaultTopicPerm: SUB, defaultGroupPerm: SUB}"
    file.write_text(READERS + other)
    async with live_broker(tmp_path / "stores", acl=True, acl_file=file) as live:
        who = people(live.broker)
        reader, stranger = await who.session(*READER), await who.session("other-reader", "secretOfOther")
        await (await who.session(*OPERATOR)).call(UpdateAndCreateTopic("prices", 4, 4, 6))
        await reader.call(HeartBeat(), beat(("own", "prices")))  # of the client "me"
        for request in (LockBatchMq(), UnlockBatchMq()):
            with pytest.raises(AccessDenied, match="client me belongs to another account"):
                await stranger.call(request, locks("own", "prices"))
        assert b"prices" in (await reader.call(LockBatchMq(), locks("own", "prices"))).body
        await reader.call(UnlockBatchMq(), locks("own", "prices"))


@pytest.mark.covers("S-ACL-01")
async def test_changed_accounts_count_within_five_seconds(tmp_path, file, people, caplog):
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    async with live_broker(tmp_path / "stores", clock, acl=True, acl_file=file) as live:
        user = await people(live.broker).session(*USER)
        with pytest.raises(AccessDenied):
            await user.call(send_request("topicD"))
        file.write_text(SAMPLE.replace("defaultTopicPerm: DENY", "defaultTopicPerm: PUB"))
        await clock.advance(5)
        await user.call(send_request("topicD"))
        file.write_text("accounts: [")
        await clock.advance(60)
        await user.call(send_request("topicD"))
    assert caplog.text.count("the accounts do not change until this is fixed") == 1


async def test_requests_that_wait_get_nothing_after_their_account_was_deleted(tmp_path, file, people):
    async with live_broker(tmp_path / "stores", acl=True, acl_file=file) as live:
        who = people(live.broker)
        user, admin = await who.session(*USER), await who.session(*ADMIN)
        offset = (await user.call(send_request("topicB"), b"before")).header.queue_offset + 1
        mine = {"topic": "topicB", "queue_id": 0, "poll_time": 30_000}
        pops = [pop_request(consumer_group=group, **mine) for group in ("groupB", "groupC")]
        for pop in pops:
            assert b"before" in (await user.call(pop)).body
        pulls = pull_request("topicB", 0, offset, consumer_group="groupB", suspend_timeout_millis=30_000)
        pulls.sys_flag |= SUSPEND
        held = user.call(pulls, timeout_s=60)
        await user.call(send_request("topicB"), b"allowed")
        assert b"allowed" in (await held).body
        for pop in pops:
            assert b"allowed" in (await user.call(pop)).body
        pulls.queue_offset = offset = offset + 1
        notes = Notification("groupC", "topicB", 0, 30_000, 0)
        asked: tuple[Any, ...] = (pulls, pops[0], notes)
        waiting = [user.call(each, accept={20, 210}, timeout_s=60) for each in asked]
        await user.call(GetMaxOffset("topicB", 0))  # the broker has those before it by now
        await admin.call(DeleteAclConfig("RocketMQ"))
        await admin.call(send_request("topicB"), b"secret")
        pulled, popped, noted = await asyncio.gather(*waiting)
        assert (pulled.code, pulled.header.next_begin_offset, bytes(pulled.body)) == (20, offset, b"")
        assert (popped.code, bytes(popped.body)) == (210, b"")
        assert noted.header.has_msg  # so the client pops
        for each in asked:
            with pytest.raises(AccessDenied):
                await user.call(each)


def test_a_broker_signs_with_two_keys_or_with_none():
    assert sign_of(BrokerSettings()) is None
    sign = sign_of(BrokerSettings(access_key="broker-a", secret_key="12345678"))
    assert sign is not None and sign({}, b"")["AccessKey"] == "broker-a"
    for half in (BrokerSettings(access_key="broker-a"), BrokerSettings(secret_key="12345678")):
        with pytest.raises(ConfigError, match="belong together"):
            sign_of(half)
