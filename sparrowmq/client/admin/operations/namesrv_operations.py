"""Requests to name servers: brokers, routes, values by key, settings.

With `address` a function asks that name server; without it the first one that answers. Changes always need an address,
because each name server keeps its own state.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from sparrowmq.client.admin.operations.asker import Asker
from sparrowmq.client.cluster.route import of_brokers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.names import CONDITIONS, LOST_BROKERS
from sparrowmq.protocol.requests import settings_text
from sparrowmq.protocol.requests.admin_headers import GetDiagnosis
from sparrowmq.protocol.requests.bodies import ClusterTable, KVTable, LostBroker, TopicList, TopicRoute
from sparrowmq.protocol.requests.namesrv_headers import (
    AddWritePermOfBroker,
    DeleteKVConfig,
    DeleteTopicInNamesrv,
    GetAllTopicListFromNameserver,
    GetBrokerCluster,
    GetKVConfig,
    GetKVListByNamespace,
    GetNamesrvConfig,
    GetRoute,
    GetSystemTopicListFromNs,
    GetTopicsByCluster,
    PutKVConfig,
    UpdateNamesrvConfig,
    WipeWritePermOfBroker,
)


async def cluster_table(asker: Asker, address: str | None = None) -> ClusterTable:
    """Return all brokers with their addresses. The address of one that a proxy hides names the broker."""
    table = ClusterTable.decode((await asker.ask_namesrv(GetBrokerCluster(), address=address)).body)
    rows = of_brokers(table.broker_addr_table.values(), names_brokers=table.names_brokers)
    return replace(table, broker_addr_table=dict(zip(table.broker_addr_table, rows, strict=True)))


async def topic_route(asker: Asker, topic: str, address: str | None = None) -> TopicRoute | None:
    """Return the brokers that have a topic, with addresses as in `cluster_table`; None if none has."""
    request = GetRoute(topic=topic, accept_standard_json_only=True)
    answer = await asker.ask_namesrv(request, accept=(ResponseCode.TOPIC_NOT_EXIST,), address=address)
    if answer.code:
        return None
    route = TopicRoute.decode(answer.body)
    return replace(route, broker_datas=of_brokers(route.broker_datas, names_brokers=route.names_brokers))


async def topic_names(asker: Asker, cluster: str | None = None) -> list[str]:
    request = GetAllTopicListFromNameserver() if cluster is None else GetTopicsByCluster(cluster=cluster)
    return TopicList.decode((await asker.ask_namesrv(request)).body).topic_list


async def system_topics_of_cluster(asker: Asker) -> TopicList:
    """Return the names of clusters and brokers, which are topics, and the address of a broker."""
    return TopicList.decode((await asker.ask_namesrv(GetSystemTopicListFromNs())).body)


async def delete_route(asker: Asker, address: str, topic: str, cluster: str | None) -> None:
    """Delete a topic's route: brokers only ever add to it."""
    await asker.ask_namesrv(DeleteTopicInNamesrv(topic=topic, cluster_name=cluster), address=address)


async def hide_from_producers(asker: Asker, address: str, broker: str) -> int:
    """Take the write permission of a broker out of all routes; returns the number of topics."""
    return (await asker.ask_namesrv(WipeWritePermOfBroker(broker), address=address)).header.wipe_topic_count


async def show_to_producers(asker: Asker, address: str, broker: str) -> int:
    """Give a broker its write permission back in all routes; returns the number of topics."""
    return (await asker.ask_namesrv(AddWritePermOfBroker(broker), address=address)).header.add_topic_count


async def value_of(asker: Asker, namespace: str, key: str) -> str | None:
    return (await asker.ask_namesrv(GetKVConfig(namespace, key))).header.value


async def values_of(asker: Asker, namespace: str, address: str) -> dict[str, str]:
    request = GetKVListByNamespace(namespace)
    answer = await asker.ask_namesrv(request, accept=(ResponseCode.QUERY_NOT_FOUND,), address=address)
    return {} if answer.code else KVTable.decode(answer.body).table


async def lost_brokers(asker: Asker, address: str) -> dict[str, LostBroker]:
    """Return the brokers by name that died, as a name server remembers; Apache's remember none."""
    found = await values_of(asker, LOST_BROKERS, address)
    return {name: LostBroker.decode(text.encode()) for name, text in found.items()}


async def conditions_of_namesrv(asker: Asker, address: str) -> dict[str, str]:
    """Return what is wrong with a name server, in the form of a brokerStatus; Apache's do not say."""
    return await values_of(asker, CONDITIONS, address)


async def put_value(asker: Asker, address: str, namespace: str, key: str, value: str) -> None:
    await asker.ask_namesrv(PutKVConfig(namespace, key, value), address=address)


async def delete_value(asker: Asker, address: str, namespace: str, key: str) -> None:
    await asker.ask_namesrv(DeleteKVConfig(namespace, key), address=address)


async def namesrv_settings(asker: Asker, address: str) -> dict[str, str]:
    """Return a name server's settings by key."""
    return dict(settings_text.parse((await asker.ask_namesrv(GetNamesrvConfig(), address=address)).body))


async def namesrv_diagnosis(asker: Asker, address: str) -> dict[str, str]:
    """Return what a name server of ours says of its process."""
    return KVTable.decode((await asker.ask_namesrv(GetDiagnosis(), address=address)).body).table


async def change_namesrv_settings(asker: Asker, address: str, changes: Mapping[str, str]) -> None:
    await asker.ask_namesrv(UpdateNamesrvConfig(), settings_text.render(changes), address=address)
