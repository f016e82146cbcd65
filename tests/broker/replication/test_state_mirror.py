"""What a slave takes from its master beside the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.broker_state import BrokerState
from sparrowmq.broker.replication import state_mirror as mirror
from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.admin_headers import (
    DeleteTopic,
    GetAllConsumerOffset,
    GetAllDelayOffset,
    GetAllSubscriptionGroup,
    GetAllTopicConfig,
    UpdateAndCreateSubscriptionGroup,
    UpdateAndCreateTopic,
)
from sparrowmq.protocol.requests.bodies import (
    DataVersion,
    GroupConfig,
    GroupConfigTable,
    TopicConfig,
    TopicConfigTable,
    TopicRoute,
)
from sparrowmq.protocol.requests.client_bodies import POP, RequestMode, RequestModeTable
from sparrowmq.protocol.requests.headers import QueryConsumerOffset, UpdateConsumerOffset
from sparrowmq.protocol.requests.namesrv_headers import GetRoute
from sparrowmq.protocol.requests.offset_bodies import ConsumerOffsets, DelayOffsets
from sparrowmq.protocol.requests.pop_headers import GetAllRequestModes, SetRequestMode
from sparrowmq.store.message_store import MessageStore
from tests.broker.conftest import until
from tests.broker.replication.pairs import Pair, pair


@pytest.fixture(autouse=True)
def short_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "PERIOD_S", 0.05)


async def topics(both: Pair, who: str) -> TopicConfigTable:
    return TopicConfigTable.decode((await (await both.session(who)).call(GetAllTopicConfig())).body)


async def offset(both: Pair, who: str, topic: str = "orders") -> int | None:
    answer = await (await both.session(who)).call(GetAllConsumerOffset())
    return ConsumerOffsets.decode(answer.body).offset_table.get(f"{topic}@consumers", {}).get(0)


async def holds(condition: Callable[[], Awaitable[bool]], limit_s: float = 10) -> None:
    """Return when an asynchronous condition holds."""
    deadline = asyncio.get_running_loop().time() + limit_s
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, "it never came to pass"
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(("period_s", "first"), [(0.05, "slave"), (60.0, "master")])
async def test_modes_of_groups_come_to_the_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, period_s: float, first: str
) -> None:
    """With each period, and at once to a slave that connects."""
    monkeypatch.setattr(mirror, "PERIOD_S", period_s)
    async with pair(tmp_path) as both:
        await both.start("master")
        if first == "slave":
            await both.start("slave")
        master = await both.session("master")
        await master.call(UpdateAndCreateTopic("made", 3, 2, 6))
        await master.call(UpdateAndCreateSubscriptionGroup(), GroupConfig("g").encode())
        await master.call(SetRequestMode(), RequestMode("made", "g", POP, 2).encode())
        if first == "master":
            await both.start("slave")

        async def has_it() -> bool:
            answer = await (await both.session("slave")).call(GetAllRequestModes())
            modes = RequestModeTable.decode(answer.body).message_request_mode_map
            return modes == {"made": {"g": RequestMode("made", "g", POP, 2)}}

        await holds(has_it)


@pytest.mark.covers("S-HA-03")
async def test_topics_groups_offsets_and_delay_progress_come_to_the_slave_and_outlive_the_master(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as both:
        await both.start("master", save_delays_ms=50)
        await both.start("slave")
        master = await both.session("master")
        await master.call(UpdateAndCreateTopic("made", 3, 2, 6))
        await both.send(b"later", properties={"DELAY": "1"})
        await both.bodies("master", "made")  # which makes the group
        await master.call(UpdateConsumerOffset("consumers", "orders", 0, 7))

        async def has_all() -> bool:
            slave = await both.session("slave")
            groups = GroupConfigTable.decode((await slave.call(GetAllSubscriptionGroup())).body)
            delays = DelayOffsets.decode((await slave.call(GetAllDelayOffset())).body)
            made = (await topics(both, "slave")).topic_config_table.get("made")
            return (
                made is not None
                and (made.read_queue_nums, made.write_queue_nums) == (3, 2)
                and "consumers" in groups.subscription_group_table
                and await offset(both, "slave") == 7
                and delays.offset_table.get(1) == 1
            )

        await holds(has_all)
        assert (await topics(both, "slave")).data_version.is_same((await topics(both, "master")).data_version)
        await both.stop("master")
        await both.stop("slave")
        await both.start("slave")
        assert await has_all()


async def test_a_delayed_message_is_delivered_by_the_master_alone(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.start("master")
        await both.start("slave")
        await both.send(b"later", properties={"DELAY": "1"})
        await holds(lambda: has(both, "master", b"later"))
        await both.same()
        assert await both.bodies("slave") == [b"later"]


async def test_a_slave_keeps_the_log_that_timers_of_its_master_need(tmp_path: Path) -> None:
    file_size = 1 << 16
    async with pair(tmp_path) as both:
        master = await both.start("master", commit_log_file_bytes=file_size)
        while master.store.end < file_size:
            await both.send(bytes(10_000))
        await both.send(b"later", properties={"TIMER_DELAY_SEC": "3600"})
        slave = await both.start("slave", commit_log_file_bytes=file_size)
        assert slave.store.hold.begin() == 0, "the master has said nothing yet"

        async def is_told() -> bool:
            return slave.store.hold.begin() != 0

        await holds(is_told)
        await both.same()
        assert slave.store.hold.begin() == master.store.hold.begin() == file_size


async def has(both: Pair, who: str, body: bytes) -> bool:
    try:
        return body in await both.bodies(who)
    except RemoteError:  # the topic is not there yet
        return False


async def test_a_topic_that_is_deleted_and_made_anew_is_so_at_the_slave(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.start("master")
        await both.start("slave")
        for topic in ("orders", "others"):
            await both.send(b"old", topic)
        await both.same()
        await holds(lambda: has(both, "slave", b"old"))
        master = await both.session("master")
        await master.call(DeleteTopic("orders"))

        async def is_gone() -> bool:
            path = both.slave_settings.store_path / "consumequeue" / "orders"
            return "orders" not in (await topics(both, "slave")).topic_config_table and not path.exists()

        await holds(is_gone)
        assert await both.bodies("slave", "others") == [b"old"]
        await both.send(b"new")
        await both.same()
        await holds(lambda: has(both, "slave", b"new"))
        assert await both.bodies("slave") == [b"new"]


async def test_a_topic_that_is_made_anew_at_once_begins_anew_at_the_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path) as both:
        await both.start("master")
        await both.start("slave")
        await both.send(b"old")
        await both.send(b"older")
        await both.same()
        await (await both.session("master")).call(DeleteTopic("orders"))
        await both.send(b"new")
        await both.same()
        await holds(lambda: has(both, "slave", b"new"))
        assert await both.bodies("slave") == [b"new"]


async def test_with_a_master_whose_log_differs_nothing_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path) as both:
        await both.start("master")
        await both.start("slave")
        await both.send(b"ours")
        await both.same()
        await holds(lambda: has(both, "slave", b"ours"))
        await both.stop("slave")
        await both.stop("master")
        both.master_settings = replace(both.master_settings, store_path=tmp_path / "another")
        await both.start("master")
        await both.send(b"theirs", "strange")
        master = await both.session("master")
        await master.call(UpdateAndCreateSubscriptionGroup(), GroupConfig("g").encode())
        await master.call(SetRequestMode(), RequestMode("strange", "g", POP, 2).encode())
        await both.start("slave")
        await until(lambda: "is not followed any more" in caplog.text)
        await asyncio.sleep(0.3)
        assert "strange" not in (await topics(both, "slave")).topic_config_table
        modes = await (await both.session("slave")).call(GetAllRequestModes())
        assert RequestModeTable.decode(modes.body).message_request_mode_map == {}
        assert await both.bodies("slave") == [b"ours"]


ANSWERS_OF_JAVA: Final[dict[type, bytes]] = {
    GetAllTopicConfig: TopicConfigTable(DataVersion(7), {"made": TopicConfig("made", 3, 2)}).encode(),
    GetAllSubscriptionGroup: GroupConfigTable(DataVersion(7), {"g": GroupConfig("g")}).encode(),
    GetAllConsumerOffset: ConsumerOffsets({"made@g": {0: 5}}).encode(),
    GetAllDelayOffset: b"",
}


class MasterOfJava:
    """A pool whose only broker keeps no journal, and does not know the newest request."""

    async def session(self, address: str) -> MasterOfJava:
        return self

    async def call(self, request: object, timeout_s: float) -> SimpleNamespace:
        if type(request) not in ANSWERS_OF_JAVA:
            raise RemoteError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "")
        return SimpleNamespace(body=ANSWERS_OF_JAVA[type(request)])


async def test_a_master_without_a_journal_is_asked_for_everything(tmp_path: Path) -> None:
    settings = BrokerSettings(name="broker-a", store_path=tmp_path, commit_log_file_bytes=1 << 20, index=False)
    with MessageStore.open(settings.store(1)) as store:
        state = BrokerState.of_slave(store, settings, SystemClock())
        pool, delayed = cast(Any, MasterOfJava()), cast(Any, SimpleNamespace(leave_master=lambda: None))
        copying = mirror.Mirror(store, state, delayed, pool, SystemClock(), lambda: True)
        copying.set_master("master:10911")
        task = asyncio.create_task(copying.run())
        try:
            await until(lambda: state.offsets.query("g", "made", 0) == 5)
        finally:
            task.cancel()
        assert state.topics.table["made"].read_queue_nums == 3
        assert state.groups.table["g"] == GroupConfig("g")


async def test_name_servers_show_a_slave_beside_its_master(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        master, slave = await both.start("master"), await both.start("slave")
        await both.send(b"x")
        namesrv = await both.pool.session(both.namesrv)
        route = TopicRoute.decode((await namesrv.call(GetRoute("TBW102"))).body)
        assert [each.broker_addrs for each in route.broker_datas] == [{0: master.address, 1: slave.address}]


async def test_with_access_control_a_slave_at_a_white_address_takes_all(tmp_path: Path) -> None:
    accounts = tmp_path / "acl.yml"
    accounts.write_text('globalWhiteRemoteAddresses: ["127.0.0.1"]\naccounts: []\n')
    async with pair(tmp_path, acl=True, acl_file=accounts, ha_secret="Xq3") as both:
        await both.start("master")
        await both.start("slave")
        await (await both.session("master")).call(UpdateConsumerOffset("consumers", "TBW102", 0, 7))
        await holds(lambda: is_at(both, 7))
        queried = await (await both.session("slave")).call(QueryConsumerOffset("consumers", "TBW102", 0))
        assert queried.header.offset == 7


async def is_at(both: Pair, wanted: int) -> bool:
    return await offset(both, "slave", "TBW102") == wanted


async def test_what_cannot_be_taken_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    accounts = tmp_path / "acl.yml"
    accounts.write_text('globalWhiteRemoteAddresses: ["10.9.9.9"]\naccounts: []\n')
    async with pair(tmp_path) as both:
        await both.start("master", acl=True, acl_file=accounts, ha_secret="Xq3")
        await both.start("slave", ha_secret="Xq3")
        await until(lambda: "cannot be copied from the master" in caplog.text)
        await asyncio.sleep(0.3)
    assert caplog.text.count("cannot be copied from the master") == 1
