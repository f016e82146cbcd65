"""Brokers (settings, figures, producers, entries of queues, cleaning), clusterList, and name servers (settings, values
by namespace and key, the order of topics, brokers without writes).

Source: the classes of org.apache.rocketmq.tools.command.broker, .producer, .queue and .namesrv, ClusterListSubCommand
and UpdateOrderConfCommand, Java 4.9.8.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from sparrowmq.admin import catalogue
from sparrowmq.admin.brokers import IN_RATES, OUT_RATES, per_second
from sparrowmq.cli.mqadmin import java
from sparrowmq.cli.mqadmin.call import Call, addresses_of, change_each, masters_with_slaves, target_addresses
from sparrowmq.cli.mqadmin.java import Failure, null_failure
from sparrowmq.protocol.names import ORDER_TOPICS
from sparrowmq.protocol.requests.admin_headers import QueryConsumeQueue
from sparrowmq.protocol.requests.bodies import MASTER, ClusterTable, FollowingState, HaStatus
from sparrowmq.protocol.subscription import Subscription

_PROGRESS_ROW: Final = "%-64.64s  %-64s  %-32.32s  %-4s  %-20s  %-20s  %-20s  %s"
_SLAVE_ROW: Final = "%-32s  %-16d %16d %16.2f %16s %16d"
_RULE: Final = "=" * 38
_BROKER_ROW: Final = "%-16s  %-22s  %-4s  %-22s %-16s %19s %19s %10s %5s %6s"
_BROKER_HEADS: Final = (
    "#Cluster Name|#Broker Name|#BID|#Addr|#Version|#InTPS(LOAD)|#OutTPS(LOAD)|#PCWait(ms)|#Hour|#SPACE"
)
_TOTALS_ROW: Final = "%-16s  %-32s %14s %14s %14s %14s"
_MS_PER_HOUR: Final = 3_600_000


async def get_broker_config(call: Call) -> None:
    heads: dict[str, str] = {}
    if call.has("b"):
        heads[call.text("b")] = f"============{call.text('b')}============"
    elif call.has("c"):
        for master, slaves in await masters_with_slaves(call, call.text("c")):
            heads[master] = f"============Master: {master}============"
            for slave in slaves:
                heads[slave] = f"============My Master: {master}=====Slave: {slave}============"

    async def show_config(address: str) -> None:
        settings = await catalogue.broker_settings(call, address)
        call.line(heads[address])
        for key, value in java.in_map_order(settings):
            call.line("%-50s=  %s", key, value)
        call.line()

    await call.all_answers(heads, show_config)


async def update_broker_config(call: Call) -> None:
    changes = {call.text("k"): call.text("v")}
    await change_each(
        call,
        lambda address: catalogue.change_broker_settings(call, address, changes),
        "update broker config success, %s",
    )


async def broker_status(call: Call) -> None:
    if call.has("b"):
        await _show_status(call, call.text("b"), "%s%-32s: %s", "")
    elif call.has("c"):
        for address in await addresses_of(call, call.text("c")):
            try:
                await _show_status(call, address, "%-24s %-32s: %s", address)
            except Failure as failure:
                call.complain(failure)


async def _show_status(call: Call, address: str, form: str, head: str) -> None:
    for name, value in sorted((await catalogue.broker_figures(call, address)).items()):
        call.line(form, head, name, value)


async def ha_status(call: Call) -> None:
    async def show_status(address: str) -> None:
        status = await catalogue.broker_ha_status(call, address)
        if status.master:
            _show_slaves(call, address, status)
        else:
            _show_slave(call, status.ha_client_runtime_info)

    await call.all_answers(await target_addresses(call), show_status)
    while call.has("i"):
        await call.pause(call.number("i"))
        await call.all_answers(await target_addresses(call), show_status)


def _show_slaves(call: Call, address: str, status: HaStatus) -> None:
    call.line("\n#MasterAddr\t%s", address)
    call.line("#MasterCommitLogMaxOffset\t%d", status.master_commit_log_max_offset)
    call.line("#SlaveNum\t%d", len(status.ha_connection_info))
    call.line("#InSyncSlaveNum\t%d", status.in_sync_slave_nums)
    call.heads(_SLAVE_ROW, "#SlaveAddr|#SlaveAckOffset|#Diff|#TransferSpeed(KB/s)|#Status|#TransferFromWhere")
    for slave in status.ha_connection_info:
        speed = slave.transferred_byte_in_second / 1024
        state = "OK" if slave.in_sync else " ".join(("Fall", "Behind"))  # Java's words
        call.line(_SLAVE_ROW, slave.addr, slave.slave_ack_offset, slave.diff, speed, state, slave.transfer_from_where)


def _show_slave(call: Call, slave: FollowingState) -> None:
    call.line("\n#MasterAddr\t%s", slave.master_addr)
    call.line("#CommitLogMaxOffset\t%d", slave.max_offset)
    call.line("#TransferSpeed(KB/s)\t%.2f", slave.transferred_byte_in_second / 1024)
    call.line("#LastReadTime\t%s", java.time_text_ms(slave.last_read_timestamp))
    call.line("#LastWriteTime\t%s", java.time_text_ms(slave.last_write_timestamp))
    call.line("#MasterFlushOffset\t%d", slave.master_flush_offset)


async def broker_consume_stats(call: Call) -> None:
    min_lag = call.number("l")
    call.number("t")  # must be a number, and has no effect
    stats = await catalogue.progress_of_all_groups(call, call.text("b"), is_order=call.is_true("o"))
    call.heads(_PROGRESS_ROW, "#Topic|#Group|#Broker Name|#QID|#Broker Offset|#Consumer Offset|#Diff|#LastTime")
    rows = [
        (group, queue, row)
        for groups in stats.consume_stats_list
        for group, topics in java.in_map_order(groups)
        for topic in topics
        for queue, row in sorted(topic.offset_table.items())
    ]
    for group, queue, row in rows:
        if row.lag >= min_lag and row.last_timestamp > 0:
            offsets = row.broker_offset, row.consumer_offset, row.lag
            place = queue.topic, group, queue.broker_name, queue.queue_id
            call.line(_PROGRESS_ROW, *place, *offsets, java.time_text(row.last_timestamp))
    call.line("\nDiff Total: %d", stats.total_diff)


async def producer(call: Call) -> None:
    for group, members in java.in_map_order(await catalogue.producers(call, call.text("b"))):
        if not members:
            call.line("producer group (%s) instances are empty", group)
        for member in members:
            call.write(
                f"producer group ({group}) instance : clientId={member.client_id},remoteIP={member.remote_ip}, "
                f"language={member.language}, version={member.version}, "
                f"lastUpdateTimestamp={member.last_update_timestamp}\n"
            )


async def query_cq(call: Call) -> None:
    topic, index = call.text("t"), call.number("i")
    address = call.text("b")
    if not address:
        master = (await call.route(topic)).broker_datas[0].broker_addrs.get(MASTER)
        if master is None:
            raise null_failure(f"no master has topic {topic}")
        address = master
    request = QueryConsumeQueue(topic, call.number("q"), index, call.number("c", 10), call.text("g") or None)
    answer = await catalogue.queue_entries(call, address, request)
    if answer.subscription_data is not None:
        call.line("Subscription data: \n%s\n%s", java.pretty_json(_subscription_json(answer.subscription_data)), _RULE)
    if answer.filter_data is not None:
        call.line("Filter data: \n%s\n%s", answer.filter_data, _RULE)
    call.line("Queue data: \nmax: %d, min: %d\n%s", answer.max_queue_index, answer.min_queue_index, _RULE)
    for number, entry in enumerate(answer.queue_data or [], index):
        call.line("idx: %d", number)
        call.write(
            f"ConsumeQueueData{{physicOffset={entry.physic_offset}, physicSize={entry.physic_size}, "
            f"tagsCode={entry.tags_code}, extendDataJson='{java.value_text(entry.extend_data_json)}', "
            f"bitMap='{java.value_text(entry.bit_map)}', eval={java.value_text(entry.eval)}, "
            f"msg='{java.value_text(entry.msg)}'}}\n"
        )
        call.line(_RULE)


def _subscription_json(subscription: Subscription) -> dict[str, Any]:
    """As Java shows it: its members by name, the sets in the order of a HashSet."""
    members: dict[str, Any] = msgspec.to_builtins(subscription)
    members["tagsSet"] = java.in_set_order(subscription.tags)
    members["codeSet"] = java.in_hash_order(sorted(subscription.codes), lambda code: code & 0xFFFFFFFF)
    return dict(sorted(members.items()))


async def _clean(call: Call, clean: Callable[[Call, str], Awaitable[None]]) -> None:
    """Clean the broker of -b, the brokers of the cluster of -c, or all."""
    if call.has("b"):
        addresses = [call.text("b")]
    else:
        table = await catalogue.cluster_table(call)
        clusters = [call.text("c")] if call.text("c") else java.in_set_order(table.cluster_addr_table)
        addresses = [
            address
            for cluster in clusters
            for name in java.in_set_order(table.cluster_addr_table.get(cluster, ()))
            for address in table.broker_addr_table[name].broker_addrs.values()
        ]
    await call.all_answers(addresses, lambda address: clean(call, address))
    call.failed = not addresses
    call.write("success" if addresses else "false")


clean_expired_cq = partial(_clean, clean=catalogue.clean_expired_queues)
clean_unused_topic = partial(_clean, clean=catalogue.clean_unused_topics)
delete_expired_commit_log = partial(_clean, clean=catalogue.delete_expired_log)


# clusterList ---------------------------------------------------------------------------------------------------------


async def cluster_list(call: Call) -> None:
    show = _show_totals if call.has("m") else _show_brokers
    await show(call)
    while call.has("i"):
        await call.pause(call.number("i"))
        await show(call)


async def _show_brokers(call: Call) -> None:
    call.heads(_BROKER_ROW, _BROKER_HEADS)
    for cluster, name, broker_id, address in _brokers(await catalogue.cluster_table(call)):
        figures = await _figures(call, address)
        place = cluster, name, broker_id, address, figures.get("brokerVersionDesc", "")
        loads = _load_text(figures, IN_RATES, "send"), _load_text(figures, OUT_RATES, "pull")
        space = f"{float(figures.get('commitLogDiskRatio') or 0):.4f}"
        disk = figures.get("pageCacheLockTimeMills", ""), _hours_text(figures), space
        call.line(_BROKER_ROW, *place, *loads, *disk)


async def _show_totals(call: Call) -> None:
    call.heads(_TOTALS_ROW, "#Cluster Name|#Broker Name|#InTotalYest|#OutTotalYest|#InTotalToday|#OutTotalToday")
    for cluster, name, _, address in _brokers(await catalogue.cluster_table(call)):
        figures = await _figures(call, address, silently=True)

        def total(direction: str, end: str, begin: str, figures: Mapping[str, str] = figures) -> int:
            if not figures:
                return 0
            return int(figures[f"msg{direction}Total{end}"]) - int(figures[f"msg{direction}Total{begin}"])

        yesterday = [total(direction, "TodayMorning", "YesterdayMorning") for direction in ("Put", "Get")]
        today = [total(direction, "TodayNow", "TodayMorning") for direction in ("Put", "Get")]
        call.line(_TOTALS_ROW, cluster, name, *yesterday, *today)


def _brokers(table: ClusterTable) -> Iterator[tuple[str, str, int, str]]:
    for cluster, names in java.in_map_order(table.cluster_addr_table):
        for name in sorted(names):
            row = table.broker_addr_table.get(name)
            for broker_id, address in sorted(row.broker_addrs.items()) if row is not None else ():
                yield cluster, name, broker_id, address


async def _figures(call: Call, address: str, silently: bool = False) -> dict[str, str]:
    try:
        return await catalogue.broker_figures(call, address)
    except Failure as failure:
        if not silently:
            call.complain(failure)
        return {}


def _load_text(figures: Mapping[str, str], rates: tuple[str, ...], pool: str) -> str:
    """Unlike Java, which knows one spelling of the rate: so it shows none for brokers since 4.9.5."""
    rate = per_second(figures, *rates) or 0.0
    waiting = figures.get(f"{pool}ThreadPoolQueueSize", "")
    head = figures.get(f"{pool}ThreadPoolQueueHeadWaitTimeMills", "")
    return f"{rate:9.2f}({waiting},{head}ms)"


def _hours_text(figures: Mapping[str, str]) -> str:
    oldest = figures.get("earliestMessageTimeStamp")
    return f"{(time.time() * 1000 - int(oldest)) / _MS_PER_HOUR if oldest else 0.0:2.2f}"


# Name servers --------------------------------------------------------------------------------------------------------


async def update_kv_config(call: Call) -> None:
    await _put_value(call, call.text("s"), call.text("k"), call.text("v"))
    call.line("create or update kv config to namespace success.")


async def delete_kv_config(call: Call) -> None:
    await _delete_value(call, call.text("s"), call.text("k"))
    call.line("delete kv config from namespace success.")


async def update_order_conf(call: Call) -> None:
    topic, method = call.text("t"), call.text("m")
    if method == "get":
        value = await catalogue.value_of(call, ORDER_TOPICS, topic)
        call.write(f"get orderConf success. topic=[{topic}], orderConf=[{java.value_text(value)}] ")
    elif method == "put":
        value = call.text("v")
        if not value:
            raise Failure("java.lang.Exception", "please set orderConf with option -v.")
        await put_order(call, topic, value)
        call.write(f"update orderConf success. topic=[{topic}], orderConf=[{value}]")
    elif method == "delete":
        await _delete_value(call, ORDER_TOPICS, topic)
        call.write(f"delete orderConf success. topic=[{topic}]")
    else:
        call.show_usage()


async def put_order(call: Call, topic: str, value: str) -> None:
    """Set the number of queues that an ordered topic has at each broker: `broker:queues;broker:queues`."""
    await _put_value(call, ORDER_TOPICS, topic, value)


async def put_order_of_broker(call: Call, topic: str, row: str) -> None:
    """Set it for one broker, as `broker:queues`; other brokers stay as they are."""
    try:
        known = await catalogue.value_of(call, ORDER_TOPICS, topic) or ""
    except Failure as failure:
        call.complain(failure)
        call.failed = False  # There was none yet.
        known = ""
    rows = {order.partition(":")[0]: order for order in (*filter(None, known.split(";")), row)}
    await put_order(call, topic, ";".join(order for _, order in java.in_map_order(rows)))


async def get_namesrv_config(call: Call) -> None:
    for address in call.namesrvs:
        settings = await catalogue.namesrv_settings(call, address)
        call.line("============%s============", address)
        for key, value in java.in_map_order(settings):
            call.line("%-50s=  %s", key, value)


async def update_namesrv_config(call: Call) -> None:
    key, value = call.text("k"), call.text("v")
    for address in call.namesrvs:
        await catalogue.change_namesrv_settings(call, address, {key: value})
    addresses = f"[{', '.join(call.namesrvs)}]" if call.has("n") else ""
    call.line("update name server config success!%s\n%s : %s", addresses, key, value)


async def _change_perm(call: Call, verb: str, change: Callable[[Call, str, str], Awaitable[int]]) -> None:
    broker = call.text("b")
    for address in call.namesrvs:
        sentence = f"{verb} write perm of broker[{broker}] in name server[{address}]"
        try:
            count = await change(call, address, broker)
        except Failure as failure:
            call.line("%s Failed", sentence)
            call.complain(failure)
        else:
            call.line("%s OK, %d", sentence, count)


wipe_write_perm = partial(_change_perm, verb="wipe", change=catalogue.hide_from_producers)
add_write_perm = partial(_change_perm, verb="add", change=catalogue.show_to_producers)


async def _put_value(call: Call, namespace: str, key: str, value: str) -> None:
    await _change_namesrvs(call, lambda address: catalogue.put_value(call, address, namespace, key, value))


async def _delete_value(call: Call, namespace: str, key: str) -> None:
    await _change_namesrvs(call, lambda address: catalogue.delete_value(call, address, namespace, key))


async def _change_namesrvs(call: Call, change: Callable[[str], Awaitable[None]]) -> None:
    """Change all name servers; then raise the last refusal."""
    last_failure: Failure | None = None
    for address in call.namesrvs:
        try:
            await change(address)
        except Failure as failure:
            last_failure = failure
    if last_failure is not None:
        raise last_failure
