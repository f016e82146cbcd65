"""Requests to one broker about itself: settings, figures, producers, consume queues, clean-up."""

from __future__ import annotations

from collections.abc import Mapping

from sparrowmq.client.admin.operations.asker import Asker
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests import settings_text
from sparrowmq.protocol.requests.admin_headers import (
    CleanExpiredConsumeQueue,
    CleanUnusedTopic,
    DeleteExpiredCommitLog,
    GetAllProducers,
    GetBrokerConfig,
    GetBrokerConsumeStats,
    GetBrokerRuntime,
    GetDiagnosis,
    GetHaStatus,
    GetProducerConnectionList,
    QueryConsumeQueue,
    RestartBroker,
    UpdateBrokerConfig,
    ViewBrokerStats,
)
from sparrowmq.protocol.requests.bodies import (
    OWN_VERSION,
    PROTOCOL_RELEASE,
    BrokerStats,
    HaStatus,
    KVTable,
    QueueEntries,
)
from sparrowmq.protocol.requests.client_bodies import ProducerConnections, ProducerEntry, ProducerTable
from sparrowmq.protocol.requests.offset_bodies import BrokerConsumeStats

_VERY_PATIENT = 10  # a broker goes through all groups and queues


async def broker_figures(asker: Asker, address: str) -> dict[str, str]:
    """Return all figures by Java's names: `putTps`, `msgPutTotalTodayNow` and so on."""
    return KVTable.decode((await asker.ask(address, GetBrokerRuntime())).body).table


def version_of(figures: Mapping[str, str]) -> str | None:
    """Return a broker's own version. One of Apache only names its release."""
    return figures.get(OWN_VERSION) or figures.get(PROTOCOL_RELEASE)


async def broker_ha_status(asker: Asker, address: str) -> HaStatus:
    """Return the state of replication at a broker."""
    return HaStatus.decode((await asker.ask(address, GetHaStatus())).body)


async def broker_diagnosis(asker: Asker, address: str) -> dict[str, str]:
    """Return what a broker of ours says of its process."""
    return KVTable.decode((await asker.ask(address, GetDiagnosis())).body).table


async def broker_statistic(asker: Asker, address: str, name: str, key: str) -> BrokerStats:
    """Return one figure over the last minute, hour and day, such as `TOPIC_PUT_NUMS` of a topic.

    A broker that has counted nothing for the key answers with an error.
    """
    return BrokerStats.decode((await asker.ask(address, ViewBrokerStats(name, key))).body)


async def broker_settings(asker: Asker, address: str) -> dict[str, str]:
    return dict(settings_text.parse((await asker.ask(address, GetBrokerConfig())).body))


async def change_broker_settings(asker: Asker, address: str, changes: Mapping[str, str]) -> None:
    """Change settings of a running broker, and for its next start."""
    await asker.ask(address, UpdateBrokerConfig(), settings_text.render(changes))


async def restart_broker(asker: Asker, address: str, began_ms: int) -> None:
    """Let a broker end in order and begin again, if it has begun at this time; Apache's cannot."""
    await asker.ask(address, RestartBroker(boot_timestamp=began_ms))


async def progress_of_all_groups(asker: Asker, address: str, *, only_ordered: bool = False) -> BrokerConsumeStats:
    """Return the offsets of every group that has consumed at a broker."""
    request = GetBrokerConsumeStats(is_order=only_ordered)
    return BrokerConsumeStats.decode((await asker.ask(address, request, patience=_VERY_PATIENT)).body)


async def producers(asker: Asker, address: str) -> dict[str, list[ProducerEntry]]:
    return ProducerTable.decode((await asker.ask(address, GetAllProducers())).body).data


async def producer_connections(asker: Asker, address: str, group: str) -> ProducerConnections:
    return ProducerConnections.decode((await asker.ask(address, GetProducerConnectionList(group))).body)


async def queue_entries(asker: Asker, address: str, request: QueryConsumeQueue) -> QueueEntries:
    """Return entries of a consume queue: where its messages are stored, and the hashes of their tags.

    Raises: RemoteError, the queue has no entry at this index. Apache's broker says so in the remark of a success.
    """
    answer = await asker.ask(address, request)
    if not answer.body:
        remark = answer.remark or f"Index {request.index} of {request.queue_id}@{request.topic} is not exist!"
        raise RemoteError(ResponseCode.SYSTEM_ERROR, remark)
    return QueueEntries.decode(answer.body)


async def clean_expired_queues(asker: Asker, address: str) -> None:
    """Delete the consume queue entries of messages that are gone."""
    await asker.ask(address, CleanExpiredConsumeQueue())


async def clean_unused_topics(asker: Asker, address: str) -> None:
    """Delete the queues of topics that do not exist."""
    await asker.ask(address, CleanUnusedTopic())


async def delete_expired_log(asker: Asker, address: str) -> None:
    """Delete the log files that are older than the retention."""
    await asker.ask(address, DeleteExpiredCommitLog())
