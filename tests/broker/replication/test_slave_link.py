"""One slave and its master: where it begins, what it gets, when it is let go. The slave speaks as Java's does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sparrowmq.broker.replication.slave_link import VISIBLE_END_DELAY_S, ShippingRules, SlaveLink
from sparrowmq.protocol import replication
from sparrowmq.protocol.replication import HEAD, VISIBLE_END
from sparrowmq.remoting.log_limit import LINES, LogLimit
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.testing.clock import ManualClock
from tests.broker.conftest import until
from tests.broker.replication.slaves import ScriptedSlave, slave_at
from tests.store.stores import put

FILE_SIZE = 64 << 10


class Master:
    """A store, and a port where each who comes gets a link."""

    def __init__(self, path: Path, rules: ShippingRules) -> None:
        self.clock = ManualClock()
        settings = StoreSettings(path=path, commit_log_file_size=FILE_SIZE, index=False)
        self.store = MessageStore.open(settings, clock=self.clock)
        self.rules = rules
        self.links: list[SlaveLink] = []
        self.acknowledged: list[int | None] = []
        self.ended: list[SlaveLink] = []
        self.address = ""
        self.shown = 0
        self.lines = LogLimit(self.clock)

    def make(self) -> SlaveLink:
        link = SlaveLink(
            self.store,
            self.store.written,
            self.clock,
            self.rules,
            lambda link: self.acknowledged.append(link.acked),
            self.ended.append,
            lambda: self.shown,
            self.lines,
        )
        self.links.append(link)
        return link

    def fill(self, count: int, body: bytes = b"body") -> int:
        for _ in range(count):
            put(self.store, body)
        self.store.publish()
        return self.store.end

    def log(self, begin: int = 0) -> bytes:
        content = b""
        while begin + len(content) < self.store.end:
            content += bytes(self.store.log_bytes(begin + len(content), 1 << 30) or b"")
        return content


def flip(path: Path, place: int) -> None:
    """Change one bit of a file."""
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 1]))


@asynccontextmanager
async def serving(path: Path, rules: ShippingRules | None = None) -> AsyncIterator[Master]:
    master = Master(path, rules or ShippingRules())
    server = await asyncio.get_running_loop().create_server(master.make, "127.0.0.1", 0)
    master.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield master
    finally:
        server.close()
        for link in master.links:
            link.close()
        master.store.close()


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Master]:
    async with serving(tmp_path) as master:
        yield master


@pytest.fixture
async def slave(master: Master) -> AsyncIterator[ScriptedSlave]:
    async with slave_at(master.address) as slave:
        yield slave


async def test_a_peer_that_was_gone_before_it_was_accepted_is_closed(master: Master) -> None:
    class Gone(asyncio.Transport):
        """What uvloop makes of a health check that resets its connections."""

        aborted = False

        def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
            pass

        def abort(self) -> None:
            self.aborted = True

    transport = Gone()
    master.make().connection_made(transport)
    assert transport.aborted and master.links.pop().acked is None


async def test_a_connection_that_ends_before_its_first_report_is_forgotten(master: Master) -> None:
    async with slave_at(master.address):
        await until(lambda: master.links != [])
    await until(lambda: master.ended == master.links)


async def test_a_slave_gets_the_log_from_where_it_says_and_what_comes_then(
    master: Master, slave: ScriptedSlave
) -> None:
    size = master.fill(1)
    master.fill(9)
    slave.report(2 * size)
    assert await slave.follow(10 * size) == master.log(2 * size)
    master.fill(5)
    assert await slave.follow(15 * size) == master.log(2 * size) and slave.began_at == 2 * size


async def test_a_slave_that_has_nothing_gets_all_that_there_is(master: Master, slave: ScriptedSlave) -> None:
    end = master.fill(3000)
    assert end > 5 * FILE_SIZE
    slave.report(0)
    assert await slave.follow(end) == master.log() and slave.began_at == 0


async def test_the_log_leaves_in_pieces_of_the_size_that_is_set(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, ShippingRules(batch_bytes=1000)) as master,
        slave_at(master.address) as slave,
    ):
        end = master.fill(100)
        slave.report(0)
        sizes, at = [], 0
        while at < end:
            offset, content = await slave.piece()
            assert offset == at
            sizes.append(len(content))
            at += len(content)
        assert set(sizes[:-1]) == {1000} and 0 < sizes[-1] <= 1000


async def test_each_report_that_says_more_is_an_acknowledgement(master: Master, slave: ScriptedSlave) -> None:
    end = master.fill(10)
    slave.report(0)
    await slave.follow(end)
    slave.report(end - 7)
    await until(lambda: master.acknowledged == [0, end - 7])
    for offset in (end - 7, end - 9):
        slave.report(offset)
        await asyncio.sleep(0.01)
    slave.report(end)
    await until(lambda: master.acknowledged[-1:] == [end])
    assert master.acknowledged == [0, end - 7, end]


async def test_who_acknowledges_what_it_never_got_is_let_go(master: Master, slave: ScriptedSlave) -> None:
    end = master.fill(10)
    slave.report(0)
    await slave.follow(end)
    slave.report(end + 1)
    assert await slave.is_let_go()
    assert end + 1 not in master.acknowledged


async def test_a_slave_with_more_than_its_master_is_told_where_the_log_ends_and_let_go(
    master: Master, slave: ScriptedSlave, caplog: pytest.LogCaptureFixture
) -> None:
    end = master.fill(3)
    slave.report(end + 100)
    assert await slave.piece() == (end, b"")
    assert await slave.is_let_go()
    assert "it has more than its master" in caplog.text and master.acknowledged == []


async def test_a_slave_that_was_away_for_too_long_is_told_where_the_log_begins_and_let_go(
    master: Master, slave: ScriptedSlave, caplog: pytest.LogCaptureFixture
) -> None:
    master.fill(3000)
    master.store._log.row.drop_first()  # as retention does
    slave.report(10)
    assert await slave.piece() == (master.store.begin, b"")
    assert await slave.is_let_go()
    assert "it was away for longer than messages are kept" in caplog.text


async def test_an_idle_slave_gets_signs_of_life(master: Master, slave: ScriptedSlave) -> None:
    end = master.fill(2)
    slave.report(end)
    await until(lambda: master.acknowledged == [end])
    assert await slave.piece() == (end, b"")  # at once: it lacks nothing
    await master.clock.advance(4.9)
    master.links[0].check()
    await master.clock.advance(0.2)
    master.links[0].check()
    master.fill(1)
    assert await slave.piece() == (end, b"")
    offset, content = await slave.piece()
    assert offset == end and content


async def test_speed_is_that_between_two_looks(master: Master, slave: ScriptedSlave) -> None:
    begin = master.fill(2)
    slave.report(begin)
    await until(lambda: master.acknowledged == [begin])
    master.links[0].check()
    end = master.fill(10)
    await until(lambda: master.links[0].position == end)
    await master.clock.advance(2)
    master.links[0].check()
    assert master.links[0].speed == (end - begin) // 2
    await master.clock.advance(1)
    master.links[0].check()
    assert master.links[0].speed == 0


async def test_a_silent_slave_is_let_go_and_one_that_reports_is_not(master: Master, slave: ScriptedSlave) -> None:
    slave.report(0)
    await until(lambda: master.acknowledged == [0])
    await master.clock.advance(19)
    slave.report(0)
    await until(lambda: master.links[0].last_heard == 19)
    await master.clock.advance(19)
    master.links[0].check()
    assert master.ended == []
    await master.clock.advance(2)
    master.links[0].check()
    assert await slave.is_let_go()
    await until(lambda: master.ended == master.links)


@pytest.mark.slow
async def test_a_slave_that_does_not_read_holds_up_nobody_and_gets_all_in_the_end(tmp_path: Path) -> None:
    async with serving(tmp_path) as master, slave_at(master.address) as slave:
        end = master.fill(40, bytes(60_000))
        for _ in range(4):
            end = master.fill(40, bytes(60_000))
        slave.reader._limit = 1 << 10  # type: ignore[attr-defined]  # so it stops reading early
        slave.report(0)
        await until(lambda: bool(master.acknowledged))
        await asyncio.sleep(0.05)
        link = master.links[0]
        assert link.position < end  # the rest stays in the log until there is room
        assert await slave.follow(end) == master.log()


async def test_what_rotted_is_not_shipped_and_what_lies_before_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as master:
        size = master.fill(1)
        master.fill(1999)
        master.store._log.distrust()  # as what nobody looked at since the start
        damage = FILE_SIZE + 100 * size
        flip(tmp_path / "commitlog" / f"{FILE_SIZE:020d}", 100 * size + 100)
        for _ in range(2):
            async with slave_at(master.address) as slave:
                slave.report(0)
                assert await slave.follow(damage) == master.log()[:damage]
                assert await slave.reader.read() == b""
        assert list(master.store.scrubber.damaged) == [damage]
        assert caplog.text.count(f"is damaged from offset {damage} to {damage + size}") == 1
        assert "no slave gets more until that is repaired" in caplog.text
        async with slave_at(master.address) as slave:  # one that has it goes on behind it
            slave.report(damage + size + 7)
            await slave.follow(master.store.end)
            end = master.fill(10)
            assert await slave.follow(end) == master.log()[damage + size + 7 :]


# With a secret ------------------------------------------------------------------------------------------------------


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Master]:
    async with serving(tmp_path, ShippingRules(secret="Xq3")) as master:
        master.fill(3)
        yield master


async def test_who_shows_that_it_knows_the_secret_is_served(guarded: Master) -> None:
    async with slave_at(guarded.address) as slave:
        assert await slave.introduce("Xq3")
        slave.report(0)
        assert await slave.follow(guarded.store.end) == guarded.log()


async def test_the_secret_is_shown_in_any_pieces(guarded: Master) -> None:
    async with slave_at(guarded.address) as slave:
        mine = replication.hello()
        for byte in mine:
            slave.writer.write(bytes([byte]))
            await asyncio.sleep(0.0005)
        hers = await slave.reader.readexactly(len(mine))
        await slave.reader.readexactly(32)
        rest = replication.proof("Xq3", "slave", mine, hers) + (0).to_bytes(8, "big")
        for at in range(0, len(rest), 7):
            slave.writer.write(rest[at : at + 7])
            await asyncio.sleep(0.0005)
        assert await slave.follow(guarded.store.end) == guarded.log()


async def test_who_says_nothing_of_the_secret_as_javas_slaves_is_let_go(
    guarded: Master, caplog: pytest.LogCaptureFixture
) -> None:
    async with slave_at(guarded.address) as slave:
        slave.report(0)
        assert await slave.heard() == b""
    assert "Java's slaves cannot" in caplog.text and guarded.acknowledged == []


async def test_strangers_write_few_lines_and_hide_none_about_a_slave(
    guarded: Master, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(30):
        async with slave_at(guarded.address) as stranger:
            stranger.report(0)
            assert await stranger.is_let_go()
    assert caplog.text.count("before it follows") == LINES
    async with slave_at(guarded.address) as slave:
        assert await slave.introduce("Xq3")
        slave.report(0)
        await slave.follow(guarded.store.end)
        slave.report(1 << 40)
        assert await slave.is_let_go()
    assert "is disconnected: it says that it has the log up to" in caplog.text


async def test_who_knows_another_secret_is_let_go_and_hears_nothing(
    guarded: Master, caplog: pytest.LogCaptureFixture
) -> None:
    async with slave_at(guarded.address) as slave:
        assert not await slave.introduce("another")
        slave.report(0)
        assert await slave.heard() == b""
    assert "its haSecret differs" in caplog.text and guarded.acknowledged == []


async def test_a_proof_of_another_day_does_not_help(guarded: Master) -> None:
    async with slave_at(guarded.address) as slave:
        heard = replication.proof("Xq3", "slave", replication.hello(), replication.hello())
        assert await slave.introduce("Xq3", heard)
        slave.report(0)
        assert await slave.heard() == b""


# Where the master is elected ----------------------------------------------------------------------------------------


@pytest.fixture
async def elected(tmp_path: Path) -> AsyncIterator[Master]:
    async with serving(tmp_path, ShippingRules(epoch=7)) as master:
        master.fill(3)
        yield master


async def test_a_member_that_follows_in_this_epoch_is_served_in_whatever_pieces_it_says_so(
    elected: Master,
) -> None:
    async with slave_at(elected.address) as slave:
        for byte in replication.introduction(2, 7):
            slave.writer.write(bytes([byte]))
            await asyncio.sleep(0.0005)
        slave.report(0)
        assert await slave.follow(elected.store.end) == elected.log()
        assert elected.links[0].member == 2


async def test_a_member_that_asks_is_told_how_far_consumers_may_read(elected: Master) -> None:
    async with slave_at(elected.address) as slave, slave_at(elected.address) as other:
        slave.writer.write(replication.introduction(2, 7, asks_visible_end=True))
        other.writer.write(replication.introduction(3, 7))
        for each in (slave, other):
            each.report(elected.store.end)
            assert await each.piece() == (elected.store.end, b""), "a heartbeat"
        for elected.shown in (100, 100, 200):
            for link in elected.links:
                link.send_visible_end_soon()
            await asyncio.sleep(5 * VISIBLE_END_DELAY_S)
        heads = await slave.reader.readexactly(2 * HEAD.size)
        assert list(HEAD.iter_unpack(heads)) == [(100, VISIBLE_END), (200, VISIBLE_END)]
        elected.links[0].check()
        elected.fill(1)
        assert (await other.piece())[1] == elected.log(elected.store.end // 4 * 3), "older ones know no such head"


@pytest.mark.parametrize("epoch", [6, 8])
async def test_a_member_that_means_another_epoch_is_let_go(elected: Master, epoch: int) -> None:
    async with slave_at(elected.address) as slave:
        slave.writer.write(replication.introduction(2, epoch))
        slave.report(0)
        assert await slave.is_let_go()
    assert elected.acknowledged == []


async def test_who_is_no_member_does_not_follow_an_elected_master(elected: Master) -> None:
    async with slave_at(elected.address) as slave:
        slave.report(0)
        assert await slave.is_let_go()
    assert elected.acknowledged == []
