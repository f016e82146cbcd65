"""Topics: updateTopic, updateTopicPerm, deleteTopic, topicRoute, topicStatus, topicList, topicClusterList, allocateMQ,
statsAll.

Source: the classes of org.apache.rocketmq.tools.command.topic and .stats, Java 4.9.8.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import msgspec

from sparrowmq.admin import catalogue
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
from sparrowmq.client.cluster.routes import Route
from sparrowmq.protocol import names
from sparrowmq.protocol.allocation import portion_of
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import MASTER, ClusterTable, TopicConfig, TopicRoute
from sparrowmq.protocol.requests.offset_bodies import TopicOffset

_ROUTE_ROW: Final = "%-45s %-32s %-50s %-10s %-11s %-5s"
_RULE: Final = "-" * 158
_STATUS_ROW: Final = "%-32s  %-4s  %-20s  %-20s    %s"
_STATS_ROW: Final = "%-64.64s  %-64.64s %12d %11.2f %11.2f %14d %14d"
_STATS_ROW_WITHOUT_GROUP: Final = "%-64.64s  %-64s %12d %11.2f %11s %14d %14s"
_UNIT: Final = 1
_UNIT_SUB: Final = 2


async def update_topic(call: Call) -> None:
    flag = _UNIT * call.is_true("u") | _UNIT_SUB * call.is_true("s")
    read_queues, write_queues, perm = call.number("r", 8), call.number("w", 8), call.number("p", 6)
    topic = TopicConfig(call.text("t"), read_queues, write_queues, perm, order=call.is_true("o"), topic_sys_flag=flag)
    if call.has("b"):
        await _put_at_broker(call, topic, call.text("b"))
    else:
        await _put_in_cluster(call, topic, call.text("c"))
    call.write(java.topic_text(topic))


async def _put(call: Call, address: str, topic: TopicConfig) -> None:
    await catalogue.put_topic(call, address, topic, modification=call.text("a") or None)


async def _put_at_broker(call: Call, topic: TopicConfig, address: str) -> None:
    await _put(call, address, topic)
    if topic.order:
        order = f"{await broker_name_at(call, address)}:{topic.write_queue_nums}"
        await put_order_of_broker(call, topic.topic_name, order)
        call.write(f"set broker orderConf. isOrder=true, orderConf=[{order}]")
    call.line("create topic to %s success.", address)


async def _put_in_cluster(call: Call, topic: TopicConfig, cluster: str) -> None:
    for address in await masters_of(call, cluster):
        await _put(call, address, topic)
        call.line("create topic to %s success.", address)
    if topic.order:
        brokers = (await catalogue.cluster_table(call)).cluster_addr_table.get(cluster)
        if not brokers:
            raise Failure("java.lang.Exception", NO_CLUSTER)
        order = ";".join(f"{name}:{topic.write_queue_nums}" for name in java.in_set_order(brokers))
        await put_order(call, topic.topic_name, order)
        call.write(f"set cluster orderConf. isOrder=true, orderConf=[{order}]")


async def update_topic_perm(call: Call) -> None:
    name, perm = call.text("t"), call.number("p")
    route = await call.route(name)
    row = route.queue_datas[0]
    topic = TopicConfig(name, row.read_queue_nums, row.write_queue_nums, perm, topic_sys_flag=row.topic_sys_flag)
    if call.has("b"):
        await _change_perm_at(call, route, topic, call.text("b"))
    elif call.has("c"):
        for address in await masters_of(call, call.text("c")):
            await catalogue.put_topic(call, address, topic)
            call.line("update topic perm from %s to %s in %s success.", row.perm, perm, address)
    else:
        call.show_usage()


async def _change_perm_at(call: Call, route: TopicRoute, topic: TopicConfig, address: str) -> None:
    names_of_master = [row.broker_name for row in route.broker_datas if row.broker_addrs.get(MASTER) == address]
    if not names_of_master:
        call.failed = True
        call.line("updateTopicPerm error broker not exit or broker is not master!.")
        return
    perm = next((row.perm for row in route.queue_datas if row.broker_name == names_of_master[0]), 0)
    if perm == topic.perm:
        call.line("new perm equals to the old one!")
        return
    await catalogue.put_topic(call, address, topic)
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
    call.line(_ROUTE_ROW, "#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm")
    for broker in sorted(route.broker_datas, key=lambda broker: broker.broker_name):
        row = rows[broker.broker_name]
        addresses = ", ".join(f"{key}={address}" for key, address in sorted(broker.broker_addrs.items()))
        numbers = row.read_queue_nums, row.write_queue_nums, row.perm
        call.line(_ROUTE_ROW, broker.cluster, broker.broker_name, "{" + addresses + "}", *numbers)
    call.line(_RULE)
    totals = [sum(row.read_queue_nums for row in rows.values()), sum(row.write_queue_nums for row in rows.values())]
    call.line(_ROUTE_ROW, "Total:", len(rows), "", *totals, "")


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
    call.heads(_STATUS_ROW, "#Broker Name|#QID|#Min Offset|#Max Offset|#Last Updated")
    for queue, row in sorted(offsets.items()):
        updated = java.time_text_ms(row.last_update_timestamp) if row.last_update_timestamp > 0 else ""
        call.line(_STATUS_ROW, queue.broker_name[:32], queue.queue_id, row.min_offset, row.max_offset, updated)


async def topic_offsets(call: Call, topic: str) -> dict[MessageQueue, TopicOffset]:
    """Return the queues of a topic at the brokers that answer."""
    offsets: dict[MessageQueue, TopicOffset] = {}
    addresses = addresses_to_ask(await call.route(topic))
    for part in await call.all_answers(addresses, lambda address: catalogue.topic_offsets(call, address, topic)):
        offsets |= part
    if not offsets:
        raise client_failure("Not found the topic stats info")
    return offsets


async def topic_list(call: Call) -> None:
    if not call.has("c"):
        for topic in await call.topics():
            call.line(topic)
        return
    table = await catalogue.cluster_table(call)
    call.line("%-20s  %-48s  %-48s", "#Cluster Name", "#Topic", "#Consumer Group")
    for topic in await call.topics():
        if names.group_of(topic) is None:
            for row in await _topic_rows(call, topic, table):
                call.line("%-20.20s  %-64.64s  %-64.64s", *row)


async def _topic_rows(call: Call, topic: str, table: ClusterTable) -> list[tuple[str, str, str]]:
    name = ""
    groups: list[str] = []
    with suppress(Failure):
        brokers = (await call.route(topic)).broker_datas
        name = cluster_of(table, brokers[0].broker_name) or "null"
        groups = await consumers_of(call, topic)
    return [(name, topic, group) for group in groups or [""]]


async def topic_cluster_list(call: Call) -> None:
    table = await catalogue.cluster_table(call)
    broker = (await call.route(call.text("t"))).broker_datas[0].broker_name
    for cluster in java.in_set_order(name for name, brokers in table.cluster_addr_table.items() if broker in brokers):
        call.line(cluster)


async def allocate_mq(call: Call) -> None:
    topic, members = call.text("t"), call.text("i").split(",")
    queues = java.queues_in_map_order(Route.build(topic, await call.route(topic)).readable)
    result = {
        member: [
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
            for queue in portion_of(queues, len(members), members.index(member))
        ]
        for member in java.in_set_order(members)
    }
    call.line(msgspec.json.encode({"result": result}).decode())


async def stats_all(call: Call) -> None:
    call.heads(_STATS_ROW, "#Topic|#Consumer Group|#Accumulation|#InTPS|#OutTPS|#InMsg24Hour|#OutMsg24Hour")
    only_topic = call.text("t")
    for topic in await call.topics():
        if names.group_of(topic) is None and only_topic in ("", topic):
            with suppress(Failure):
                await _show_topic(call, topic, call.has("a"))


async def _show_topic(call: Call, topic: str, only_active: bool) -> None:
    route = await call.route(topic)
    groups = await consumers_of(call, topic)
    masters = (broker.broker_addrs.get(MASTER) for broker in route.broker_datas)
    addresses = [address for address in masters if address is not None]
    in_tps, in_today = await figure_of_brokers(call, addresses, "TOPIC_PUT_NUMS", topic)
    for group in groups:
        out_tps, out_today = await figure_of_brokers(call, addresses, "GROUP_GET_NUMS", f"{topic}@{group}")
        lag = 0
        with suppress(Failure):
            lag = max(0, lag_of(await consume_stats(call, group, topic)))
        if not only_active or in_today > 0 or out_today > 0:
            call.line(_STATS_ROW, topic, group, lag, in_tps, out_tps, in_today, out_today)
    if not groups and (not only_active or in_today > 0):
        call.line(_STATS_ROW_WITHOUT_GROUP, topic, "", 0, in_tps, "", in_today, "NO_CONSUMER")
