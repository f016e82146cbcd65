"""Two masters with slaves, of which one may be elected by its group, for what operators do with a running cluster.

Producers send and a consumer reads all the time. A run ends with three figures: sends that failed, messages that were
acknowledged and never consumed, and the quantiles of the time that a send took. The first two must be 0.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from sparrowmq import Admin, ProducerSettings, SendStatus, connect
from sparrowmq.client.client import Client
from sparrowmq.errors import SparrowError
from tests.interop.apache import free_ports
from tests.interop.etcd import LiveEtcd
from tests.interop.servers import OurBroker, OurNamesrv

NAMES: Final = ("broker-a", "broker-b")
TOPIC: Final = "orders"
GROUP: Final = "readers"
QUEUES: Final = 4
_BODY: Final = bytes(200)
_BEHIND: Final = 500  # sends in flight above which no more begin, however late they are
_LIMIT_S: Final = 120.0


@dataclass(slots=True)
class Traffic:
    """What was sent and consumed.

    Attributes:
        acked: the numbers of acknowledged messages.
        took_s: how long each send took.
        failed: what failed sends raised, and what others than OK said.
        sending_s: for how long was sent.
    """

    acked: set[int] = field(default_factory=set)
    consumed: set[int] = field(default_factory=set)
    took_s: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    sending_s: float = 0.0

    def quantile_ms(self, share: float) -> float:
        ordered = sorted(self.took_s) or [0.0]
        return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000, 1)

    @property
    def lost(self) -> set[int]:
        """The acknowledged messages that were not consumed."""
        return self.acked - self.consumed


class OperatedCluster:
    """A name server, two masters and their slaves, as processes with settings files.

    Args:
        stack: ends the processes.
        elected: whether broker-b is a group of three members that elect their master by an etcd.
    """

    def __init__(
        self,
        folder: Path,
        stack: ExitStack,
        settings: Mapping[str, Any] = MappingProxyType({}),
        *,
        elected: bool = False,
    ) -> None:
        self.namesrv = stack.enter_context(OurNamesrv()).address
        self.brokers: dict[tuple[str, int], OurBroker] = {}
        ports = iter(free_ports(3 * 2 * len(NAMES)))
        usual = {"mappedFileSizeCommitLog": 64 << 20, "defaultTopicQueueNums": QUEUES, **settings}
        roles: dict[tuple[str, int], dict[str, str]] = {
            (name, broker_id): {"brokerRole": "SLAVE" if broker_id else "SYNC_MASTER"}
            for name in (NAMES[:1] if elected else NAMES)
            for broker_id in (0, 1)
        }
        if elected:
            group = {
                "brokerRole": "SYNC_MASTER",
                "enableControllerMode": "true",
                "etcdEndpoints": stack.enter_context(LiveEtcd()).endpoint,
            }
            roles |= {(NAMES[1], member): group for member in (1, 2, 3)}
        for (name, broker_id), role in roles.items():
            own = {"brokerName": name, "brokerId": broker_id, "haListenPort": next(ports)} | role
            broker = OurBroker(self.namesrv, folder / f"{name}-{broker_id}", usual | own, next(ports))
            self.brokers[name, broker_id] = stack.enter_context(broker)


@asynccontextmanager
async def under_load(
    cluster: OperatedCluster, rate: float, timeout_s: float = 3.0
) -> AsyncIterator[tuple[Admin, Traffic]]:
    """Send and consume inside the `with`. At its end, wait until all is consumed, or a time limit is over.

    Args:
        rate: messages per second, if the machine can.
        timeout_s: of each send. On a machine that is very busy a process may stand still for longer than the default.
    """
    traffic, settings = Traffic(), ProducerSettings(timeout_s=timeout_s)
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Admin(cluster.namesrv, timeout_s=15))
        mq = await stack.enter_async_context(connect(cluster.namesrv, group="writers", settings=settings))
        await admin.create_topic(TOPIC, queues=QUEUES)
        await admin.create_group(GROUP)
        consuming = asyncio.create_task(_consume(cluster.namesrv, traffic))
        ended = asyncio.Event()
        sending = asyncio.create_task(_send(mq, rate, traffic, ended))
        try:
            yield admin, traffic
        finally:
            ended.set()
            await sending
            with suppress(TimeoutError):
                async with asyncio.timeout(_LIMIT_S):
                    while traffic.lost:
                        await asyncio.sleep(0.1)
            consuming.cancel()
            await asyncio.gather(consuming, return_exceptions=True)


async def _send(mq: Client, rate: float, traffic: Traffic, ended: asyncio.Event) -> None:
    began, number, in_flight = time.monotonic(), 0, 0

    async def one(number: int) -> None:
        nonlocal in_flight
        in_flight += 1
        at = time.monotonic()
        try:
            sent = await mq.send(TOPIC, b"%d %s" % (number, _BODY))
            traffic.acked.add(number)
            if sent.status is not SendStatus.OK:
                traffic.failed.append(f"message {number}, at {at - began:.1f} s: {sent.status.name}, {sent.queue}")
        except SparrowError as error:
            traffic.failed.append(
                f"message {number}, after {time.monotonic() - at:.2f} s, at {at - began:.1f} s: {error}"
            )
        finally:
            traffic.took_s.append(time.monotonic() - at)
            in_flight -= 1

    async with asyncio.TaskGroup() as tasks:
        while not ended.is_set():
            due = int((time.monotonic() - began) * rate) - number
            for _ in range(min(due, _BEHIND - in_flight)):
                tasks.create_task(one(number))
                number += 1
            await asyncio.sleep(0.005)
    traffic.sending_s = time.monotonic() - began


async def _consume(namesrv: str, traffic: Traffic) -> None:
    async with connect(namesrv) as mq, mq.subscribe(TOPIC, group=GROUP, start="earliest") as messages:
        async for message in messages:
            traffic.consumed.add(int(message.body.split(b" ", 1)[0]))
            message.ack()
