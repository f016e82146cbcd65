"""Settings of consumer groups: updateSubGroup, setConsumeMode, deleteSubGroup, getConsumerConfig.

Source: UpdateSubGroupSubCommand, DeleteSubscriptionGroupCommand and GetConsumerConfigSubCommand, Java 4.9.8.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.cli.mqadmin import brokers_of, java
from sparrowmq.cli.mqadmin.call import Call
from sparrowmq.cli.mqadmin.failures import Failure
from sparrowmq.cli.mqadmin.topic_subcommands import remove_topic
from sparrowmq.client.admin.operations import (
    cluster_table,
    delete_group,
    group_table,
    put_group,
    put_request_mode,
)
from sparrowmq.protocol.names import dlq_topic, retry_topic
from sparrowmq.protocol.requests.bodies import BrokerRoute, GroupConfig
from sparrowmq.protocol.requests.client_bodies import RequestMode
from sparrowmq.protocol.requests.group_settings import GroupRetryPolicy

_FAILED_PAUSE_S: Final = 1.0


async def update_sub_group(call: Call) -> None:
    group = GroupConfig(
        call.text("g"),
        consume_enable=call.is_true("s", True),
        consume_from_min_enable=call.is_true("m"),
        consume_broadcast_enable=call.is_true("d"),
        retry_queue_nums=call.number("q", 1),
        retry_max_times=call.number("r", 16),
        broker_id=call.number("i"),
        which_broker_when_consume_slowly=call.number("w", 1),
        notify_consumer_ids_changed_enable=call.is_true("a", True),
        consume_message_orderly=call.is_true("o") if call.has("o") else None,
        group_retry_policy=GroupRetryPolicy.decode(call.text("p").encode()) if call.has("p") else None,
    )

    async def put(address: str) -> None:
        await put_group(call, address, group)
        call.line("create subscription group to %s success.", address)

    if await brokers_of.change_each(call, put, _FAILED_PAUSE_S):
        call.write(java.fields("SubscriptionGroupConfig", java.group_table(group)))


async def set_consume_mode(call: Call) -> None:
    mode = RequestMode(call.text("t"), call.text("g"), call.text("m"), call.number("q"))

    async def put(address: str) -> None:
        await put_request_mode(call, address, mode)
        call.line("set consume mode to %s success.", address)

    if await brokers_of.change_each(call, put, _FAILED_PAUSE_S):
        names = f"topic[{mode.topic}] group[{mode.consumer_group}]"
        call.write(f"{names} consume mode[{mode.mode}] popShareQueueNum[{mode.pop_share_queue_num}]")


async def delete_sub_group(call: Call) -> None:
    group = call.text("g")
    removes = call.is_true("r")
    if call.has("b"):
        await delete_group(call, call.text("b"), group, with_offsets=removes)
        call.line("delete subscription group [%s] from broker [%s] success.", group, call.text("b"))
    elif call.has("c"):
        cluster = call.text("c")
        for address in await brokers_of.masters(call, cluster):
            await delete_group(call, address, group, with_offsets=removes)
            place = f"broker [{address}] in cluster [{cluster}]"
            call.line("delete subscription group [%s] from %s success.", group, place)
        try:
            await remove_topic(call, retry_topic(group), cluster)
            await remove_topic(call, dlq_topic(group), cluster)
        except Failure as failure:
            call.complain(failure)
    else:
        call.show_usage()


async def get_consumer_config(call: Call) -> None:
    table = await cluster_table(call)
    group = call.text("g")

    async def at(row: tuple[str, BrokerRoute]) -> tuple[str, GroupConfig | None]:
        name, broker = row
        address = brokers_of.one_of(broker.broker_addrs) or ""
        return name, (await group_table(call, address)).get(group)

    for name, config in await call.each(java.table(table.broker_addr_table), at):
        if config is None:
            continue
        cluster = brokers_of.cluster_of(table, name)
        call.line("=============================%s:%s=============================", java.truth(cluster), name)
        for key, value in java.group_table(config).items():
            call.line("%-40s=  %s", key, java.truth(value))
