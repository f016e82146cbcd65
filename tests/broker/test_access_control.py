"""Access control as a broker's settings have it, seen from outside."""

import logging

import pytest

from sparrowmq.broker.access_control import AccessControl
from sparrowmq.broker.broker import Broker
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.errors import AccessDenied, ConfigError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.admin_headers import GetBrokerRuntime
from sparrowmq.protocol.requests.headers import HeartBeat, ViewMessage
from sparrowmq.protocol.signature import signer
from sparrowmq.remoting.pool import Pool
from sparrowmq.testing.clock import ManualClock
from tests.auth.asked import ADMIN, SAMPLE, USER, beat
from tests.broker.live import live_broker, pull_request, send_request


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
    assert files is not None and "RocketMQ" in files.now.by_key


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "ROCKETMQ_HOME"),
        ({"acl_check": " ; "}, "aclCheck is empty"),
        ({"acl_check": "mine"}, "none of plain"),
    ],
)
def test_what_cannot_be_checked_ends_the_start(settings, words):
    with pytest.raises(ConfigError, match=words):
        control(acl=True, **settings)


def test_checks_of_others_stand_beside_the_accounts_or_alone(file):
    both = control(acl=True, acl_file=file, acl_check="plain; tests.broker.test_access_control:Never")
    alone = control(acl=True, acl_check="tests.broker.test_access_control:Never")
    assert both.files is not None and alone.files is None
    assert both.guard is not None and alone.guard is not None


class Never:
    """A check of others."""

    def __init__(self, settings):
        assert settings["aclEnable"] == "true"

    def check(self, request):
        raise AccessDenied("never")


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
@pytest.mark.covers("S-ACL-10", breaks="Account.may: return True")
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


@pytest.mark.covers("S-ACL-01", breaks="AccountFiles.look: return None")
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
