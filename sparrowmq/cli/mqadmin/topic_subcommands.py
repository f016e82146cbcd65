"""Topics: updateTopic, updateTopicPerm, deleteTopic, topicRoute, topicStatus, topicList, topicClusterList, allocateMQ,
statsAll.

Source: the classes of org.apache.rocketmq.tools.command.topic and .stats, Java 4.9.8.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import msgspec

from sparrowmq.cli.mqadmin import java
from sparrowmq.cli.mqadmin.call import (
    NO_CLUSTER,
    Call,
    addresses_to_ask,
    broker_name_at,
    cluster_of,
    masters_of,
    remove_topic,
)
from sparrowmq.cli.mqadmin.group_subcommands import consume_stats, consumers_of, figure_of_brokers, lag_of
from sparrowmq.cli.mqadmin.java import Failure, client_failure
from sparrowmq.cli.mqadmin.server_subcommands import put_order, put_order_of_broker
from sparrowmq.client.admin import operations
from sparrowmq.client.admin.operations import cluster_table
from sparrowmq.client.cluster.routes import Route
from sparrowmq.protocol import names
from sparrowmq.protocol.allocation import portion_of
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import MASTER, ClusterTable, TopicConfig, TopicRoute
from sparrowmq.protocol.requests.offset_bodies import TopicOffset

_ROUTE: Final = "%-45s %-32s %-50s %-10s %-11s %-5s"
_RULE: Final = "-" * 158
_STATUS: Final = "%-32s  %-4s  %-20s  %-20s    %s"
_STATS: Final = "%-64.64s  %-64.64s %12d %11.2f %11.2f %14d %14d"
_STATS_ALONE: Final = "%-64.64s  %-64s %12d %11.2f %11s %14d %14s"
_UNIT: Final = 1
_UNIT_SUB: Final = 2


async def update_topic(call: Call) -> None:
    flag = _UNIT * call.is_true("u") | _UNIT_SUB * call.is_true("s")
    topic = TopicConfig(
        call.text("t"),
        call.number("r", 8),
        call.number("w", 8),
        call.number("p", 6),
        order=call.is_true("o"),
        topic_sys_flag=flag,
    )
    if call.has("b"):
        await _update_at(call, topic, call.text("b"))
    else:
        await _update_in(call, topic, call.text("c"))
    call.write(java.topic_text(topic))


async def _put(call: Call, address: str, topic: TopicConfig) -> None:
    await operations.put_topic(call, address, topic, modification=call.text("a") or None)


async def _update_at(call: Call, topic: TopicConfig, address: str) -> None:
    await _put(call, address, topic)
    if topic.order:
        order = f"{await broker_name_at(call, address)}:{topic.write_queue_nums}"
        await put_order_of_broker(call, topic.topic_name, order)
        call.write(f"set broker orderConf. isOrder=true, orderConf=[{order}]")
    call.line("create topic to %s success.", address)


async def _update_in(call: Call, topic: TopicConfig, cluster: str) -> None:
    for address in await masters_of(call, cluster):
        await _put(call, address, topic)
        call.line("create topic to %s success.", address)
    if topic.order:
        there = (await cluster_table(call)).cluster_addr_table.get(cluster)
        if not there:
            raise Failure("java.lang.Exception", NO_CLUSTER)
        order = ";".join(f"{name}:{topic.write_queue_nums}" for name in java.names(there))
        await put_order(call, topic.topic_name, order)
        call.write(f"set cluster orderConf. isOrder=true, orderConf=[{order}]")


async def update_topic_perm(call: Call) -> None:
    name, perm = call.text("t"), call.number("p")
    route = await call.route(name)
    row = route.queue_datas[0]
    topic = TopicConfig(name, row.read_queue_nums, row.write_queue_nums, perm, topic_sys_flag=row.topic_sys_flag)
    if call.has("b"):
        await _update_perm_at(call, route, topic, call.text("b"))
    elif call.has("c"):
        for address in await masters_of(call, call.text("c")):
            await operations.put_topic(call, address, topic)
            call.line("update topic perm from %s to %s in %s success.", row.perm, perm, address)
    else:
        call.show_usage()


async def _update_perm_at(call: Call, route: TopicRoute, topic: TopicConfig, address: str) -> None:
    found = [row.broker_name for row in route.broker_datas if row.broker_addrs.get(MASTER) == address]
    if not found:
        call.failed = True
        call.line("updateTopicPerm error broker not exit or broker is not master!.")
        return
    perm = next((row.perm for row in route.queue_datas if row.broker_name == found[0]), 0)
    if perm == topic.perm:
        call.line("new perm equals to the old one!")
        return
    await operations.put_topic(call, address, topic)
    call.line("update topic perm from %s to %s in %s success.", perm, topic.perm, address)
    call.line("%s.", java.topic_text(topic))


async def delete_topic(call: Call) -> None:
    await remove_topic(call, call.text("t"), call.text("c"))


async def topic_route(call: Call) -> None:
    route = await call.route(call.text("t"))
    if not call.has("l"):
        call.line(java.pretty_json(_route_json(route)))
        return
    rows = {row.broker_name: row for row in route.queue_datas}
    call.line(_ROUTE, "#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm")
    for broker in sorted(route.broker_datas, key=lambda each: each.broker_name):
        row = rows[broker.broker_name]
        addresses = ", ".join(f"{key}={address}" for key, address in sorted(broker.broker_addrs.items()))
        numbers = row.read_queue_nums, row.write_queue_nums, row.perm
        call.line(_ROUTE, broker.cluster, broker.broker_name, "{" + addresses + "}", *numbers)
    call.line(_RULE)
    totals = [sum(row.read_queue_nums for row in rows.values()), sum(row.write_queue_nums for row in rows.values())]
    call.line(_ROUTE, "Total:", len(rows), "", *totals, "")


def _route_json(route: TopicRoute) -> dict[str, object]:
    table: dict[str, object] = {
        "brokerDatas": [
            {
                "brokerAddrs": dict(sorted(broker.broker_addrs.items())),
                "brokerName": broker.broker_name,
                "cluster": broker.cluster,
            }
            for broker in route.broker_datas
        ],
        "filterServerTable": route.filter_server_table,
        "queueDatas": [
            {
                "brokerName": row.broker_name,
                "perm": row.perm,
                "readQueueNums": row.read_queue_nums,
                "topicSysFlag": row.topic_sys_flag,
                "writeQueueNums": row.write_queue_nums,
            }
            for row in route.queue_datas
        ],
    }
    if route.order_topic_conf is not None:
        table["orderTopicConf"] = route.order_topic_conf
    return dict(sorted(table.items()))


async def topic_status(call: Call) -> None:
    offsets = await topic_offsets(call, call.text("t"))
    call.heads(_STATUS, "#Broker Name|#QID|#Min Offset|#Max Offset|#Last Updated")
    for queue, each in sorted(offsets.items()):
        updated = each.last_update_timestamp
        when = java.time_text_ms(updated) if updated > 0 else ""
        call.line(_STATUS, queue.broker_name[:32], queue.queue_id, each.min_offset, each.max_offset, when)


async def topic_offsets(call: Call, topic: str) -> dict[MessageQueue, TopicOffset]:
    """Return the queues of a topic at the brokers that answer."""
    found: dict[MessageQueue, TopicOffset] = {}
    addresses = addresses_to_ask(await call.route(topic))
    for share in await call.all_answers(addresses, lambda address: operations.topic_offsets(call, address, topic)):
        found |= share
    if not found:
        raise client_failure("Not found the topic stats info")
    return found


async def topic_list(call: Call) -> None:
    if not call.has("c"):
        for topic in await call.topics():
            call.line(topic)
        return
    cluster = await cluster_table(call)
    call.line("%-20s  %-48s  %-48s", "#Cluster Name", "#Topic", "#Consumer Group")
    for topic in await call.topics():
        if names.group_of(topic) is not None:
            continue
        for row in await _consumers(call, topic, cluster):
            call.line("%-20.20s  %-64.64s  %-64.64s", *row)


async def _consumers(call: Call, topic: str, cluster: ClusterTable) -> list[tuple[str, str, str]]:
    where: str = ""
    groups: list[str] = []
    try:
        brokers = (await call.route(topic)).broker_datas
        where = cluster_of(cluster, brokers[0].broker_name) or "null"
        groups = await consumers_of(call, topic)
    except Failure:
        pass
    return [(where, topic, group) for group in groups or [""]]


async def topic_cluster_list(call: Call) -> None:
    table = await cluster_table(call)
    broker = (await call.route(call.text("t"))).broker_datas[0].broker_name
    for cluster in java.names(name for name, has in table.cluster_addr_table.items() if broker in has):
        call.line(cluster)


async def allocate_mq(call: Call) -> None:
    topic, members = call.text("t"), call.text("i").split(",")
    queues = java.queues(Route.build(topic, await call.route(topic)).readable)
    result = {
        member: [
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
            for queue in portion_of(queues, len(members), members.index(member))
        ]
        for member in java.names(members)
    }
    call.line(msgspec.json.encode({"result": result}).decode())


async def stats_all(call: Call) -> None:
    call.heads(_STATS, "#Topic|#Consumer Group|#Accumulation|#InTPS|#OutTPS|#InMsg24Hour|#OutMsg24Hour")
    chosen = call.text("t")
    for topic in await call.topics():
        if names.group_of(topic) is None and chosen in ("", topic):
            try:
                await _show_topic(call, topic, call.has("a"))
            except Failure:
                continue


async def _show_topic(call: Call, topic: str, only_active: bool) -> None:
    route = await call.route(topic)
    groups = await consumers_of(call, topic)
    masters = (broker.broker_addrs.get(MASTER) for broker in route.broker_datas)
    addresses = [address for address in masters if address is not None]
    came, came_a_day = await figure_of_brokers(call, addresses, "TOPIC_PUT_NUMS", topic)
    for group in groups:
        went, went_a_day = await figure_of_brokers(call, addresses, "GROUP_GET_NUMS", f"{topic}@{group}")
        behind = 0
        with suppress(Failure):
            behind = max(0, lag_of(await consume_stats(call, group, topic)))
        if not only_active or came_a_day > 0 or went_a_day > 0:
            call.line(_STATS, topic, group, behind, came, went, came_a_day, went_a_day)
    if not groups and (not only_active or came_a_day > 0):
        call.line(_STATS_ALONE, topic, "", 0, came, "", came_a_day, "NO_CONSUMER")
