"""Writers of staged batches belong to accounts."""

import json

import pytest

from sparrowmq.broker.staging import writers
from sparrowmq.errors import AccessDenied, RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import batch, record
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.requests.headers import CommitBatch, StageBatch
from sparrowmq.protocol.signature import signer
from sparrowmq.remoting.pool import Pool
from tests.broker.live import live_broker

ACCOUNTS = """
accounts:
- {accessKey: operator, secretKey: secret-of-all, admin: true}
- {accessKey: sparkjob, secretKey: secret-of-all, topicPerms: [orders=PUB]}
- {accessKey: stranger, secretKey: secret-of-all, topicPerms: [orders=PUB]}
- {accessKey: no-rights, secretKey: secret-of-all, defaultTopicPerm: DENY}
"""
NAMED = json.dumps({"attempts": {"attempt": 1}}).encode()
EMPTY = b'{"attempts":{}}'


class People:
    """Sessions to a broker with access control, by access key."""

    def __init__(self, path, text=ACCOUNTS):
        self._file = path / "plain_acl.yml"
        self._file.write_text(text)
        self._stores = path / "stores"
        self._pools = []

    def broker(self):
        return live_broker(self._stores, acl=True, acl_file=self._file)

    async def session(self, live, access_key):
        self._pools.append(Pool(SystemClock(), sign=signer(access_key, "secret-of-all")))
        return await self._pools[-1].session(live.broker.address)

    def close(self):
        for pool in self._pools:
            pool.close()


@pytest.fixture
async def people(tmp_path):
    found = People(tmp_path)
    yield found
    found.close()


def stage(writer="query", run="run-1", at=0, number=0):
    return StageBatch("orders", 0, writer, run, at, "attempt", number, 1_700_000_000_000)


def rows(*names):
    return batch.encode([BatchPart(name.encode(), f"UNIQ_KEY\x01{name}\x02".encode()) for name in names])


async def refused(session, request, body):
    with pytest.raises(AccessDenied, match="writer query belongs to another account"):
        await session.call(request, body)


async def live_messages(live):
    live.broker.store.publish()
    read = live.broker.store.read("orders", 0, 0, 100, 1 << 20)
    return [record.decode(each) for view in read.views for each in record.walk(view)]


async def test_another_account_neither_commits_nor_ends_a_run_nor_stages(people):
    async with people.broker() as live:
        owner = await people.session(live, "sparkjob")
        await owner.call(stage(), rows("1", "2"))
        for key in ("stranger", "no-rights"):
            other = await people.session(live, key)
            for body in (EMPTY, NAMED, b'{"attempts":{},"others":{"b":{"a":1}}}'):
                await refused(other, CommitBatch("query", "run-1", 0), body)
                await refused(other, CommitBatch("query", "run-2", 1 << 62), body)
        stranger = await people.session(live, "stranger")
        await refused(stranger, stage(run="run-2"), rows("3"))
        await refused(stranger, stage(at=1 << 62), rows("3"))
        answer = await owner.call(CommitBatch("query", "run-1", 0), NAMED)
        assert answer.header.repeated is False
        while len(await live_messages(live)) < 2:
            await owner.call(CommitBatch("query", "run-1", 0), NAMED)
        assert [each.body for each in await live_messages(live)] == [b"1", b"2"]


async def test_a_restart_keeps_the_owner(people):
    async with people.broker() as live:
        await (await people.session(live, "sparkjob")).call(stage(), rows("1"))
    async with people.broker() as live:
        await refused(await people.session(live, "stranger"), CommitBatch("query", "run-1", 0), NAMED)
        owner = await people.session(live, "sparkjob")
        assert (await owner.call(CommitBatch("query", "run-1", 0), NAMED)).header.repeated is False
    async with people.broker() as live:  # which reads the owner from the file, and no record
        await refused(await people.session(live, "stranger"), CommitBatch("query", "run-1", 0), NAMED)


async def test_an_administrator_may_act_and_the_writer_stays_its_owners(people):
    async with people.broker() as live:
        owner, operator = await people.session(live, "sparkjob"), await people.session(live, "operator")
        await owner.call(stage(), rows("1"))
        assert (await operator.call(CommitBatch("query", "run-1", 0), NAMED)).header.repeated is False
        assert (await owner.call(CommitBatch("query", "run-1", 0), NAMED)).header.repeated is True


async def test_an_account_replaces_an_owner_without_an_account(people, tmp_path):
    async with people.broker() as live:
        await (await people.session(live, "sparkjob")).call(stage(), rows("1"))
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS.replace("sparkjob", "new-spark"))
    async with people.broker() as live:
        stranger, new = await people.session(live, "no-rights"), await people.session(live, "new-spark")
        with pytest.raises(AccessDenied, match="topic:orders"):
            await stranger.call(CommitBatch("query", "run-1", 0), NAMED)
        assert (await new.call(CommitBatch("query", "run-1", 0), NAMED)).header.repeated is False
        await refused(await people.session(live, "stranger"), CommitBatch("query", "run-1", 1), NAMED)


async def test_a_commit_of_nothing_is_refused(tmp_path):
    async with live_broker(tmp_path) as live:
        await live.session.call(stage(), rows("1"))
        for body in (EMPTY, b'{"attempts":{"other":0}}'):
            with pytest.raises(RemoteError, match="has no staged messages") as error:
                await live.session.call(CommitBatch("query", "run-1", 0), body)
            assert error.value.code == ResponseCode.ILLEGAL_OPERATION
        assert (await live.session.call(CommitBatch("query", "run-1", 0), NAMED)).header.repeated is False
        # A batch that is decided already: a repeated commit says so, whatever it names.
        assert (await live.session.call(CommitBatch("query", "run-1", 0), EMPTY)).header.repeated is True


async def test_an_account_that_may_send_nowhere_decides_nothing(people):
    said = b'{"attempts":{},"others":{"b":{"attempt":1}}}'
    async with people.broker() as live:
        session, end = await people.session(live, "no-rights"), live.broker.store.end
        for body in (said, NAMED, EMPTY):
            with pytest.raises(AccessDenied, match="needs PUB"):
                await session.call(CommitBatch("theirs", "run-1", 0), body)
        assert live.broker.store.end == end
        await (await people.session(live, "stranger")).call(CommitBatch("own", "run-1", 0), said)


async def test_the_writers_of_an_account_are_limited(people, monkeypatch):
    monkeypatch.setattr(writers, "MOST_OF_AN_OWNER", 2)
    async with people.broker() as live:
        owner, other = await people.session(live, "sparkjob"), await people.session(live, "stranger")
        for name in ("a", "b", "a"):
            await owner.call(stage(writer=name), rows("1"))
        with pytest.raises(RemoteError, match="2 of this account") as error:
            await owner.call(stage(writer="c"), rows("1"))
        assert error.value.code == ResponseCode.ILLEGAL_OPERATION
        await other.call(stage(writer="c"), rows("1"))


async def test_decisions_about_other_brokers_are_limited(people, monkeypatch):
    said = b'{"attempts":{},"others":{"b":{"attempt":1}}}'
    size = len(b'{"b":{"attempt":1}}')
    monkeypatch.setattr(writers, "MOST_DECIDED_BYTES_OF_AN_OWNER", 2 * size)
    monkeypatch.setattr(writers, "MOST_DECIDED_BYTES", 3 * size)
    async with people.broker() as live:
        owner, other = await people.session(live, "sparkjob"), await people.session(live, "stranger")
        for name, at in (
            ("a", 0),
            ("b", 0),
            ("a", 1),
        ):  # a second decision of a writer replaces its first one
            await owner.call(CommitBatch(name, "run-1", at), said)
        await other.call(CommitBatch("d", "run-1", 0), said)
        end = live.broker.store.end
        for session, batch_number in ((owner, 0), (other, 0)):
            with pytest.raises(RemoteError, match="use the names of writers again") as error:
                await session.call(CommitBatch(f"e-{session is owner}", "run-1", batch_number), said)
            assert error.value.code == ResponseCode.ILLEGAL_OPERATION
        assert live.broker.store.end == end  # nor does the log grow
        await other.call(stage(writer="f"), rows("1"))
        await other.call(CommitBatch("f", "run-1", 0), NAMED)


async def test_without_access_control_a_writer_has_no_owner(tmp_path):
    async with live_broker(tmp_path) as live:
        await live.session.call(stage(), rows("1"))
        await live.session.call(stage(run="run-2"), rows("1"))
        with pytest.raises(RemoteError, match=r"2\^63-1|9223372036854775807"):
            await live.session.call(stage(at=1 << 63), rows("1"))
