"""Members with damaged or cut logs: they take what they lack from others before they serve, lead or cut."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from sparrowmq.broker import store
from sparrowmq.broker.broker_settings import SlaveAck
from sparrowmq.broker.failover.group_state import RECOVERING, OwnEpoch
from sparrowmq.broker.member import Member
from sparrowmq.broker.replication import peer_repair
from sparrowmq.broker.replication.peer_repair import POLL_S, PeerLog
from sparrowmq.errors import CorruptRecord, NetworkError, RemoteError
from sparrowmq.kernel.record_layout import MAGIC_V1
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.headers import ViewMessage
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.request_in_flight import Response
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import CorruptPolicy, Flush
from tests.broker.conftest import until
from tests.broker.members import OK, Members
from tests.interop.etcd import needs_etcd

pytestmark = needs_etcd

SAFE = {"flush": Flush.SYNC, "slave_ack": SlaveAck.FLUSHED}
TEXTS = [b"%d" % number * 40 for number in range(30)]


async def two_with_messages(members: Members, **changes: Any) -> None:
    """1 leads, 2 is in sync, and both have all of TEXTS on disk."""
    await members.start(1, **SAFE | changes)
    await members.leader()
    await members.start(2, **SAFE | changes)
    await members.in_sync(1, 2)
    for text in TEXTS:
        assert await members.send(1, text) == OK


def log_file(members: Members, number: int) -> Path:
    return members.settings(number).store_path / "commitlog" / f"{0:020d}"


def flip(members: Members, number: int, text: bytes) -> int:
    """Flip a bit of a message's body; the offset of that byte."""
    file = log_file(members, number)
    content = bytearray(file.read_bytes())
    place = content.index(text) + 5
    content[place] ^= 4
    with file.open("r+b") as opened:
        opened.seek(place)
        opened.write(content[place : place + 1])
    return place


def cut(members: Members, number: int, text: bytes, doubt: str) -> None:
    """Let the log of one that does not run end before a message, as if recovery had taken the rest for a torn tail."""
    content = log_file(members, number).read_bytes()
    at = content.rindex(MAGIC_V1.to_bytes(4, "big", signed=True), 0, content.index(text)) - 4
    settings = members.settings(number).store(members.settings(number).port)
    store = MessageStore.open(settings, cut_at=at)
    assert store.end == at
    store.close()
    OwnEpoch.load(members.settings(number).config_path).note_doubt(doubt)


async def has_all(members: Members, number: int) -> None:
    """Return once a member shows all messages; a slave does so a little after its master."""
    async with asyncio.timeout(20):
        while [body for body in await members.bodies(number) if body != b"?"] != TEXTS:
            await asyncio.sleep(0.02)


class Answers:
    """A pool of connections to one broker, which has these records; it never answers without them."""

    def __init__(self, records: dict[int, bytes] | None) -> None:
        self.records = records

    async def session(self, address: str) -> Answers:
        if self.records is None:
            await asyncio.Event().wait()
        return self

    async def call(self, request: ViewMessage, timeout_s: float) -> Response[Any]:
        assert self.records is not None
        if request.offset < 0:
            raise RemoteError(ResponseCode.NO_PERMISSION, "no")
        if request.offset not in self.records:
            raise RemoteError(ResponseCode.SYSTEM_ERROR, "can not find message by the offset")
        return Response(0, None, None, self.records[request.offset], 0)


async def test_a_refusal_is_not_taken_for_the_end_of_the_log() -> None:
    peer = PeerLog(cast(Pool, Answers({0: b"abc"})), "a:1")
    assert [await peer.ask(offset) for offset in (0, 3)] == [b"abc", None]
    with pytest.raises(RemoteError, match="no"):
        await peer.ask(-1)


async def test_silence_is_not_taken_for_the_end_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_repair, "TIMEOUT_S", 0.01)
    with pytest.raises(NetworkError, match="a:1 does not answer"):
        await asyncio.to_thread(PeerLog(cast(Pool, Answers(None)), "a:1").record_at, 0)


async def test_a_member_with_rot_takes_the_records_from_another_before_it_serves(
    members: Members, caplog: pytest.LogCaptureFixture
) -> None:
    await two_with_messages(members)
    await members.stop(1)
    await members.stop(2)
    before = members.log(1)
    for text in (TEXTS[7], TEXTS[8], TEXTS[29]):
        flip(members, 1, text)
    starting = asyncio.ensure_future(members.start(1, **SAFE))
    await until(lambda: "the records are taken from another broker" in caplog.text)
    assert not starting.done()
    await members.start(2, **SAFE)
    await starting
    assert members.log(1).startswith(before)
    await members.in_sync(1, 2)
    await members.leader()
    for number in (1, 2):
        await has_all(members, number)


async def test_damage_that_no_other_member_can_repair_ends_the_start(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    await two_with_messages(members)
    await members.stop(2)
    await members.stop(1)
    flip(members, 1, TEXTS[3])
    monkeypatch.setattr(store, "_PATIENCE_LEASES", 0.2)
    with pytest.raises(CorruptRecord, match="No other broker can repair it: no other broker is known"):
        await members.start(1, **SAFE)


async def test_a_broker_that_has_other_records_repairs_nothing_and_is_named(members: Members) -> None:
    await members.start(1)
    await members.leader()
    for text in TEXTS:
        await members.send(1, text)
    await members.stop(1)
    place = flip(members, 1, TEXTS[3])
    members.change(3, name=f"{members.name}-other")
    other = await members.start(3)

    async def peers() -> list[str]:
        return [other.address]

    why = "cannot connect"
    async with asyncio.timeout(15):
        while "cannot connect" in why:
            why = await store.repair_from_peers(members.settings(1), SystemClock(), 0, peers=peers)
    found = re.fullmatch(rf"the broker at {other.address} does not have the records from offset (\d+) to (\d+)", why)
    assert found and int(found[1]) <= place < int(found[2]), why
    assert flip(members, 1, b"3" * 5) == place


@pytest.mark.slow
async def test_a_member_whose_log_was_cut_does_not_lead_before_it_is_compared(members: Members) -> None:
    await two_with_messages(members)
    await members.power_cut(1, 2)
    cut(members, 1, TEXTS[20], "1000 bytes after offset 5 were cut off the log")
    first = await members.start(1, **SAFE)
    await until(lambda: not first._candidacy.is_fresh, 15)
    async with asyncio.timeout(15):
        while "no other member in sync runs" not in await members.problem(1):
            await asyncio.sleep(0.05)
    assert not first.leads
    await members.start(2, **SAFE)
    assert await members.leader() == 2
    await members.in_sync(1, 2)
    for number in (1, 2):
        await has_all(members, number)
    await until(lambda: first._own_record.doubt == "")
    assert OwnEpoch.load(members.settings(1).config_path).doubt == ""


@pytest.mark.slow
async def test_of_two_that_were_cut_the_one_with_more_leads(members: Members) -> None:
    await two_with_messages(members)
    await members.power_cut(1, 2)
    cut(members, 1, TEXTS[20], "it was cut")
    OwnEpoch.load(members.settings(2).config_path).note_doubt("it was cut, too")
    await members.start(1, **SAFE)
    await members.start(2, **SAFE)
    assert await members.leader() == 2
    await members.in_sync(1, 2)
    for number in (1, 2):
        await has_all(members, number)


async def test_a_recovery_that_did_not_end_leaves_a_doubt_and_one_that_cut_nothing_leaves_none(
    members: Members, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sparrowmq.broker.member")
    await two_with_messages(members)
    await members.stop(2)
    await members.stop(1)
    abort = members.settings(1).store_path / "abort"
    path = members.settings(1).config_path
    for before, after in (("", ""), (RECOVERING, RECOVERING), ("it was cut", "it was cut")):
        abort.touch()
        OwnEpoch.load(path).note_doubt(before)
        member = Member(members.settings(1))
        await member._follow()
        assert OwnEpoch.load(path).doubt == after
        await member._member_start.end()
    assert "fenced off" not in caplog.text  # nothing was


@pytest.mark.parametrize("number", [1, 2], ids=["the master", "a slave"])
async def test_damage_found_while_it_runs_is_repaired_by_another_member(
    members: Members, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    await two_with_messages(members)
    await has_all_in_time(members, number)
    before = members.log(number)
    flip(members, number, TEXTS[11])
    broker = members._running[number][0].broker
    assert broker is not None
    broker.store._log.distrust()  # as at a start: these messages are not as new as the process
    with pytest.raises(CorruptRecord):
        broker.store.read("orders", 0, 11, 1)
    await until(lambda: members.log(number) == before and not broker.store.scrubber.damaged)
    assert len(broker.store.read("orders", 0, 11, 1).views) == 1


async def fenced_off(members: Members) -> None:
    """The first runs without the message that its start has fenced off; the second has it, and does not run."""
    await two_with_messages(members)
    await members.stop(2)
    await members.stop(1)
    flip(members, 1, TEXTS[7])
    await members.start(1, corrupt_policy=CorruptPolicy.QUARANTINE, **SAFE)


async def second_gives_back(members: Members) -> None:
    await members.start(2, **SAFE)
    await members.in_sync(1, 2)
    for number in (1, 2):
        await has_all_in_time(members, number)


async def has_all_in_time(members: Members, number: int) -> None:
    async with asyncio.timeout(15):
        while True:
            with suppress(RemoteError):
                if [body for body in await members.bodies(number) if body != b"?"] == TEXTS:
                    return
            await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_a_quarantined_member_gets_back_what_it_fenced_off(members: Members) -> None:
    await fenced_off(members)
    await second_gives_back(members)


@pytest.mark.slow
async def test_a_look_without_peers_does_not_delay_the_repair_from_the_first_that_comes(
    members: Members, caplog: pytest.LogCaptureFixture
) -> None:
    await fenced_off(members)
    await members.leader()
    await asyncio.sleep(2 * POLL_S)
    await second_gives_back(members)
