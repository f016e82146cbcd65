"""Brokers: settings, figures, producers, entries of queues, cleaning.

Source: the classes of org.apache.rocketmq.tools.command.broker, .producer and .queue, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from sparrowmq.cli.mqadmin import brokers_of, java
from sparrowmq.cli.mqadmin.call import Call
from sparrowmq.cli.mqadmin.failures import Failure, null_failure
from sparrowmq.client.admin import operations as operations
from sparrowmq.client.admin.operations import cluster_table
from sparrowmq.client.cluster.routes import MASTER
from sparrowmq.protocol.requests.admin_headers import QueryConsumeQueue
from sparrowmq.protocol.requests.bodies import FollowingState, HaStatus
from sparrowmq.protocol.subscription import Subscription

_PROGRESS: Final = "%-64.64s  %-64s  %-32.32s  %-4s  %-20s  %-20s  %-20s  %s"
_SLAVE: Final = "%-32s  %-16d %16d %16.2f %16s %16d"
_RULE: Final = "=" * 38


async def get_broker_config(call: Call) -> None:
    if call.has("b"):
        await _show_config(call, f"============{call.text('b')}============", call.text("b"))
    elif call.has("c"):
        heads: dict[str, str] = {}
        for master, slaves in await brokers_of.masters_with_slaves(call, call.text("c")):
            heads[master] = f"============Master: {master}============"
            for slave in slaves:
                heads[slave] = f"============My Master: {master}=====Slave: {slave}============"
        await call.each(heads, lambda address: _show_config(call, heads[address], address))


async def _show_config(call: Call, head: str, address: str) -> None:
    settings = await operations.broker_settings(call, address)
    call.line(head)
    for key, value in java.table(settings):
        call.line("%-50s=  %s", key, value)
    call.line()


async def update_broker_config(call: Call) -> None:
    changes = {call.text("k"): call.text("v")}

    async def change(address: str) -> None:
        await operations.change_broker_settings(call, address, changes)
        call.line("update broker config success, %s", address)

    await brokers_of.change_each(call, change)


async def broker_status(call: Call) -> None:
    if call.has("b"):
        await _show_status(call, call.text("b"), "%s%-32s: %s", "")
    elif call.has("c"):
        for address in await brokers_of.all_addresses(call, call.text("c")):
            try:
                await _show_status(call, address, "%-24s %-32s: %s", address)
            except Failure as failure:
                call.complain(failure)


async def _show_status(call: Call, address: str, form: str, head: str) -> None:
    for name, value in sorted((await operations.broker_figures(call, address)).items()):
        call.line(form, head, name, value)


async def ha_status(call: Call) -> None:
    await _show_replication(call)
    while call.has("i"):
        await call.pause(call.number("i"))
        await _show_replication(call)


async def _show_replication(call: Call) -> None:
    await call.each(await brokers_of.chosen(call), lambda address: _show_status_at(call, address))


async def _show_status_at(call: Call, address: str) -> None:
    status = await operations.broker_ha_status(call, address)
    if status.master:
        _show_slaves(call, address, status)
    else:
        _show_slave(call, status.ha_client_runtime_info)


def _show_slaves(call: Call, address: str, status: HaStatus) -> None:
    call.line("\n#MasterAddr\t%s", address)
    call.line("#MasterCommitLogMaxOffset\t%d", status.master_commit_log_max_offset)
    call.line("#SlaveNum\t%d", len(status.ha_connection_info))
    call.line("#InSyncSlaveNum\t%d", status.in_sync_slave_nums)
    call.heads(_SLAVE, "#SlaveAddr|#SlaveAckOffset|#Diff|#TransferSpeed(KB/s)|#Status|#TransferFromWhere")
    for each in status.ha_connection_info:
        speed = each.transferred_byte_in_second / 1024
        word = "OK" if each.in_sync else " ".join(("Fall", "Behind"))  # Java's words
        call.line(_SLAVE, each.addr, each.slave_ack_offset, each.diff, speed, word, each.transfer_from_where)


def _show_slave(call: Call, slave: FollowingState) -> None:
    call.line("\n#MasterAddr\t%s", slave.master_addr)
    call.line("#CommitLogMaxOffset\t%d", slave.max_offset)
    call.line("#TransferSpeed(KB/s)\t%.2f", slave.transferred_byte_in_second / 1024)
    call.line("#LastReadTime\t%s", java.when_exactly(slave.last_read_timestamp))
    call.line("#LastWriteTime\t%s", java.when_exactly(slave.last_write_timestamp))
    call.line("#MasterFlushOffset\t%d", slave.master_flush_offset)


async def broker_consume_stats(call: Call) -> None:
    least = call.number("l")
    call.number("t")
    stats = await operations.progress_of_all_groups(call, call.text("b"), only_ordered=call.is_true("o"))
    call.heads(_PROGRESS, "#Topic|#Group|#Broker Name|#QID|#Broker Offset|#Consumer Offset|#Diff|#LastTime")
    rows = [
        (group, queue, row)
        for groups in stats.consume_stats_list
        for group, topics in java.table(groups)
        for each in topics
        for queue, row in sorted(each.offset_table.items())
    ]
    for group, queue, row in rows:
        behind = row.lag
        if behind >= least and row.last_timestamp > 0:
            offsets = row.broker_offset, row.consumer_offset, behind
            place = queue.topic, group, queue.broker_name, queue.queue_id
            call.line(_PROGRESS, *place, *offsets, java.when(row.last_timestamp))
    call.line("\nDiff Total: %d", stats.total_diff)


async def producer(call: Call) -> None:
    for group, members in java.table(await operations.producers(call, call.text("b"))):
        if not members:
            call.line("producer group (%s) instances are empty", group)
        for each in members:
            call.write(
                f"producer group ({group}) instance : clientId={each.client_id},remoteIP={each.remote_ip}, "
                f"language={each.language}, version={each.version}, "
                f"lastUpdateTimestamp={each.last_update_timestamp}\n"
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
    found = await operations.queue_entries(call, address, request)
    if found.subscription_data is not None:
        call.line("Subscription data: \n%s", java.pretty(_subscription(found.subscription_data)))
        call.line(_RULE)
    if found.filter_data is not None:
        call.line("Filter data: \n%s", found.filter_data)
        call.line(_RULE)
    call.line("Queue data: \nmax: %d, min: %d", found.max_queue_index, found.min_queue_index)
    call.line(_RULE)
    for number, each in enumerate(found.queue_data or [], index):
        call.line("idx: %d", number)
        call.write(
            f"ConsumeQueueData{{physicOffset={each.physic_offset}, physicSize={each.physic_size}, "
            f"tagsCode={each.tags_code}, extendDataJson='{java.truth(each.extend_data_json)}', "
            f"bitMap='{java.truth(each.bit_map)}', eval={java.truth(each.eval)}, msg='{java.truth(each.msg)}'}}\n"
        )
        call.line(_RULE)


def _subscription(subscription: Subscription) -> dict[str, Any]:
    """As Java shows it: its members by name, the sets in the order of a HashSet."""
    told: dict[str, Any] = msgspec.to_builtins(subscription)
    told["tagsSet"] = java.names(subscription.tags)
    told["codeSet"] = java.hashed(sorted(subscription.codes), lambda code: code & 0xFFFFFFFF)
    return dict(sorted(told.items()))


async def clean_expired_cq(call: Call) -> None:
    await _clean(call, operations.clean_expired_queues)


async def clean_unused_topic(call: Call) -> None:
    await _clean(call, operations.clean_unused_topics)


async def delete_expired_commit_log(call: Call) -> None:
    await _clean(call, operations.delete_expired_log)


async def _clean(call: Call, clean: Callable[[Call, str], Awaitable[None]]) -> None:
    """At a broker, at a cluster's, or at all."""
    if call.has("b"):
        addresses = [call.text("b")]
    else:
        table = await cluster_table(call)
        chosen = [call.text("c")] if call.text("c") else java.names(table.cluster_addr_table)
        addresses = [
            address
            for cluster in chosen
            for name in java.names(table.cluster_addr_table.get(cluster, ()))
            for address in table.broker_addr_table[name].broker_addrs.values()
        ]
    await call.each(addresses, lambda address: clean(call, address))
    call.failed = not addresses
    call.write("success" if addresses else "false")
