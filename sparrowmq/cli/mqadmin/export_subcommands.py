"""Exports to files: exportMetadata, exportConfigs, exportMetrics.

Source: the classes of org.apache.rocketmq.tools.command.export, Java 4.9.8.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from sparrowmq.admin import catalogue
from sparrowmq.admin.brokers import IN_RATES, OUT_RATES, per_second
from sparrowmq.cli.mqadmin import java
from sparrowmq.cli.mqadmin.call import Call, masters_of, masters_with_slaves
from sparrowmq.cli.mqadmin.group_subcommands import figure_of_brokers, online_members
from sparrowmq.cli.mqadmin.java import Failure, null_failure, write
from sparrowmq.protocol import names
from sparrowmq.protocol.codes import version_name
from sparrowmq.protocol.requests.bodies import MASTER, GroupConfig, TopicConfig

DEFAULT_FOLDER: Final = "/tmp/rocketmq/export"
_EXPORTED_KEYS: Final = tuple(
    word
    for line in (
        "brokerClusterName brokerId brokerName brokerRole fileReservedTime filterServerNums flushDiskType",
        "maxMessageSize messageDelayLevel msgTraceTopicName slaveReadEnable traceOn traceTopicEnable useTLS",
        "autoCreateTopicEnable autoCreateSubscriptionGroup",
    )
    for word in line.split()
)
_TOOL_VERSION: Final = "V4_9_8"


async def export_metadata(call: Call) -> None:
    folder = call.text("f", DEFAULT_FOLDER)
    if call.has("b"):
        await _export_broker(call, folder, call.text("b"))
    elif call.has("c"):
        await _export_cluster(call, folder, call.text("c"))
    else:
        call.show_usage()


async def _export_broker(call: Call, folder: str, address: str) -> None:
    if call.has("t"):
        table: dict[str, Any] = {"topicConfigTable": _table_as_json(await user_topics(call, address, call.has("s")))}
        call.write(f"export {_write(folder, 'topic.json', table)} success")
    elif call.has("g"):
        table = {"subscriptionGroupTable": _table_as_json(await user_groups(call, address))}
        call.write(f"export {_write(folder, 'subscriptionGroup.json', table)} success")


async def _export_cluster(call: Call, folder: str, cluster: str) -> None:
    topics: dict[str, TopicConfig] = {}
    groups: dict[str, GroupConfig] = {}
    for address in await masters_of(call, cluster):
        for name, topic in (await user_topics(call, address, call.has("s"))).items():
            if (known := topics.get(name)) is not None:
                topic.write_queue_nums += known.write_queue_nums
                topic.read_queue_nums += known.read_queue_nums
            topics[name] = topic
        for name, group in (await user_groups(call, address)).items():
            if name in groups:
                group.retry_queue_nums += groups[name].retry_queue_nums
            groups[name] = group
    parts = {"topicConfigTable": _table_as_json(topics), "subscriptionGroupTable": _table_as_json(groups)}
    file = "metadata.json"
    if call.has("t"):
        file = "topic.json"
        del parts["subscriptionGroupTable"]
    elif call.has("g"):
        file = "subscriptionGroup.json"
        del parts["topicConfigTable"]
    call.line("export %s success", _write(folder, file, {**parts, "exportTime": round(time.time() * 1000)}))


async def user_topics(call: Call, address: str, with_groups: bool) -> dict[str, TopicConfig]:
    """Return a broker's topics without RocketMQ's own; topics of groups only `with_groups`."""
    table = await catalogue.topic_table(call, address)
    system_topics = set(await catalogue.system_topics_of_broker(call, address))
    return {
        name: topic
        for name, topic in table.items()
        if name not in system_topics and (with_groups or names.group_of(name) is None)
    }


async def user_groups(call: Call, address: str) -> dict[str, GroupConfig]:
    """Return a broker's groups without RocketMQ's own."""
    return {
        name: group
        for name, group in (await catalogue.group_table(call, address)).items()
        if not names.is_system_group(name)
    }


def _table_as_json(table: Mapping[str, TopicConfig | GroupConfig]) -> dict[str, Any]:
    """Return the table as fastjson writes it: fields by name, without nulls."""
    return {name: dict(sorted(msgspec.to_builtins(each).items())) for name, each in java.in_map_order(table)}


async def export_configs(call: Call) -> None:
    brokers = await masters_with_slaves(call, call.text("c"))
    configs: dict[str, dict[str, str]] = {}
    for master, _ in brokers:
        settings = await catalogue.broker_settings(call, master)
        if missing := [name for name in _EXPORTED_KEYS if name not in settings]:
            raise null_failure(f"the broker at {master} does not tell {', '.join(missing)}")
        configs[settings["brokerName"]] = dict(java.in_map_order({name: settings[name] for name in _EXPORTED_KEYS}))
    scale = {
        "namesrvSize": len(call.namesrvs),
        "slaveBrokerSize": sum(len(slaves) for _, slaves in brokers),
        "masterBrokerSize": len(brokers),
    }
    table = {"clusterScale": scale, "brokerConfigs": dict(java.in_map_order(configs))}
    call.write(f"export {_write(call.text('f', DEFAULT_FOLDER), 'configs.json', table)} success")


async def export_metrics(call: Call) -> None:
    table = await catalogue.cluster_table(call)
    brokers = table.cluster_addr_table.get(call.text("c"))
    if brokers is None:
        raise null_failure(f"there is no cluster {call.text('c')}")
    report: dict[str, dict[str, Any]] = {}
    for name in java.in_set_order(brokers):
        address = table.broker_addr_table[name].broker_addrs.get(MASTER)
        if address is None:
            raise null_failure(f"broker {name} has no master")
        report[name] = await _report(call, address)
    result = {"totalData": _sum_report(report), "evaluateReport": dict(java.in_map_order(report))}
    call.write(f"export {_write(call.text('f', DEFAULT_FOLDER), 'metrics.json', result)} success")


async def _report(call: Call, address: str) -> dict[str, Any]:
    figures = await catalogue.broker_figures(call, address)
    settings = await catalogue.broker_settings(call, address)
    groups = await user_groups(call, address)
    environment = {
        "totalMemKBytes": figures.get("totalMemKBytes"),
        "cpuNum": settings.get("clientCallbackExecutorThreads"),
    }
    return {
        "runtimeVersion": {"rocketmqVersion": _TOOL_VERSION, "clientInfo": await _client_versions(call, groups)},
        "runtimeQuota": await _quota(call, address, figures, len(groups)),
        "runtimeEnv": {name: value for name, value in environment.items() if value is not None},
    }


async def _client_versions(call: Call, groups: Mapping[str, GroupConfig]) -> list[str]:
    versions: set[str] = set()
    for group in groups:
        with suppress(Failure):
            members = (await online_members(call, group)).connection_set
            versions.update(f"{member.language}%{version_name(member.version)}" for member in members)
    return java.in_set_order(sorted(versions))


async def _quota(call: Call, address: str, figures: Mapping[str, str], group_count: int) -> dict[str, Any]:
    half_tps, half_a_day = await figure_of_brokers(call, [address], "TOPIC_PUT_NUMS", names.HALF_TOPIC)
    delayed_tps, delayed_a_day = await figure_of_brokers(call, [address], "TOPIC_PUT_NUMS", names.SCHEDULE_TOPIC)

    def count_yesterday(direction: str) -> int:
        morning = int(figures[f"msg{direction}TotalTodayMorning"])
        return morning - int(figures[f"msg{direction}TotalYesterdayMorning"])

    return {
        "diskRatio": {name: figures[name] for name in ("commitLogDiskRatio", "consumeQueueDiskRatio")},
        "topicSize": len(await user_topics(call, address, False)),
        "tps": {
            "scheduleInTps": delayed_tps,
            "normalInTps": per_second(figures, *IN_RATES) or 0.0,
            # Unlike Java's, which knows one spelling and fails at brokers since 4.9.5.
            "normalOutTps": per_second(figures, *OUT_RATES) or 0.0,
            "transInTps": half_tps,
        },
        "groupSize": group_count,
        "oneDayNum": {
            "transOneDayInNum": half_a_day,
            "scheduleOneDayInNum": delayed_a_day,
            "normalOneDayOutNum": count_yesterday("Get"),
            "normalOneDayInNum": count_yesterday("Put"),
        },
        "messageAverageSize": figures["putMessageAverageSize"],
    }


def _sum_report(report: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the sums over all brokers; the names are those of one broker's figures with "total" before them."""

    def total(part: str, name: str) -> Any:
        return sum(of_broker["runtimeQuota"][part][name] for of_broker in report.values())

    counts = ("transOneDayInNum", "scheduleOneDayInNum", "normalOneDayOutNum", "normalOneDayInNum")
    rates = ("scheduleInTps", "normalInTps", "transInTps", "normalOutTps")
    return {
        "totalOneDayNum": {name: total("oneDayNum", name) for name in counts},
        "totalTps": {f"total{name[0].upper()}{name[1:]}": float(total("tps", name)) for name in rates},
    }


def _write(folder: str, file: str, table: dict[str, Any]) -> Path:
    return write(Path(folder) / file, java.pretty_json(table).encode())
