"""Elected brokers: what a master has answered about topics, groups and offsets is known at the next one."""

from __future__ import annotations

from sparrowmq.broker.change_log import Change
from sparrowmq.core import snapshot
from sparrowmq.protocol.requests.admin_headers import (
    GetAllSubscriptionGroup,
    GetAllTopicConfig,
    UpdateAndCreateSubscriptionGroup,
    UpdateAndCreateTopic,
)
from sparrowmq.protocol.requests.bodies import (
    DataVersion,
    GroupConfig,
    GroupConfigTable,
    JournalMark,
    TopicConfig,
    TopicConfigTable,
)
from sparrowmq.protocol.requests.client_bodies import POP, RequestMode, RequestModeTable
from sparrowmq.protocol.requests.headers import QueryConsumerOffset, UpdateConsumerOffset
from sparrowmq.protocol.requests.pop_headers import GetAllRequestModes, SetRequestMode
from sparrowmq.protocol.wire import json
from tests.broker.members import Members
from tests.interop.etcd import needs_etcd

pytestmark = needs_etcd


async def topics_of(members: Members, number: int) -> dict[str, TopicConfig]:
    session = await members.pool.session(f"127.0.0.1:{members.settings(number).port}")
    return TopicConfigTable.decode((await session.call(GetAllTopicConfig())).body).topic_config_table


async def test_what_a_master_answered_to_operators_is_known_at_the_next_one(members: Members) -> None:
    await members.two_in_sync()
    session = await members.pool.session(f"127.0.0.1:{members.settings(1).port}")
    await session.call(UpdateAndCreateTopic("orders", 3, 3, 6))
    await session.call(UpdateAndCreateTopic("orders", 9, 9, 6))
    await session.call(UpdateAndCreateSubscriptionGroup(), GroupConfig("workers", retry_max_times=7).encode())
    await session.call(UpdateConsumerOffset("workers", "orders", 8, 0))
    mode = RequestMode("orders", "workers", POP, 2)
    await session.call(SetRequestMode(), mode.encode())
    await members.power_cut(1)
    assert await members.leader(2) == 2
    session = await members.pool.session(f"127.0.0.1:{members.settings(2).port}")
    assert (await topics_of(members, 2))["orders"].read_queue_nums == 9
    groups = GroupConfigTable.decode((await session.call(GetAllSubscriptionGroup())).body)
    assert groups.subscription_group_table["workers"].retry_max_times == 7
    modes = RequestModeTable.decode((await session.call(GetAllRequestModes())).body)
    assert modes.message_request_mode_map == {"orders": {"workers": mode}}
    asked = QueryConsumerOffset("workers", "orders", 8, set_zero_if_not_found=False)
    assert (await session.call(asked)).header.offset == 0


async def test_a_topic_that_only_the_former_master_has_is_forgotten_with_its_part_of_the_log(
    members: Members,
) -> None:
    await members.second_leads()
    with members.store(1) as store:  # as if it had died with this on its way to the slave
        store.append(Change(topics=[TopicConfig("alone")]).entry(1, b"\0" * 8))
    path = members.settings(1).config_path / "topics.json"
    table = TopicConfigTable(DataVersion(99), {"alone": TopicConfig("alone")}, JournalMark(99))
    snapshot.save(path, table, encode=json.dumps)
    await members.start(1)
    await members.in_sync(1, 2)
    topics = await topics_of(members, 1)
    assert "alone" not in topics and "orders" in topics
