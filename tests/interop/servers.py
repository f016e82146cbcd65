"""A cluster of one broker for the tests to talk to: ours, or Apache's, which proves that the test itself is right.

    with running("ours", tmp_path) as target:
        target.create_topic("T", queues=2)
        ... any client with target.namesrv ...

Both sides get the same settings, and delays so short that a message which fails comes back after a second. What a
test looks up by itself it asks through `wire.Wire`, which shares no code with the product.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.interop.apache import ApacheBroker, ApacheNamesrv, free_ports
from tests.interop.child import Child, scratch
from tests.interop.wire import Reply, Wire

OURS: Final = "ours"
APACHE: Final = "apache-4.9.7"
REPOSITORY: Final = Path(__file__).parents[2]

# Level 2 is the one that delay tests use; a failed message waits at level 3 and above.
DELAY_LEVELS: Final = "1s 2s" + 16 * " 1s"
SETTINGS: Final = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerIP1": "127.0.0.1",
    "flushDiskType": "ASYNC_FLUSH",
    "messageDelayLevel": DELAY_LEVELS,
    "mappedFileSizeCommitLog": 16 << 20,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20_000,
    "traceTopicEnable": "true",
    "enablePropertyFilter": "true",
    "diskMaxUsedSpaceRatio": 95,
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
}
# Where two below its port, or one above, somebody else may want to be.
OUR_SETTINGS: Final = {"fastListenPort": "off", "haListenPort": "off"}
# Apache's 5.x gathers for three seconds what it notes of transactions' ends, and asks about them meanwhile.
APACHES_SETTINGS: Final = {"transactionOpBatchInterval": 20}

_POLL_S: Final = 0.05


@dataclass(frozen=True)
class Target:
    """A cluster under test."""

    name: str
    namesrv: str
    broker: str

    @property
    def is_ours(self) -> bool:
        return self.name == OURS

    def ask(self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"", **header: object) -> Reply:
        """One request to the broker."""
        host, _, port = self.broker.rpartition(":")
        with Wire(int(port), host) as wire:
            return wire.ask(code, fields, body, **header)

    def create_topic(self, *names: str, queues: int = 2) -> None:
        for name in names:
            reply = self.ask(17, topic_fields(name, queues))
            assert reply.code == 0, f"{name}: {reply.remark}"

    def create_group(self, name: str, retries: int) -> None:
        """A consumer group whose messages are dead after so many retries.

        Its retry topic is there from the start, so that clients need not look for its route again, up to 30 s later.
        """
        config = {"groupName": name, "retryMaxTimes": retries, "retryQueueNums": 1, "consumeEnable": True}
        reply = self.ask(200, body=json.dumps(config | _GROUP, separators=(",", ":")).encode())
        assert reply.code == 0, reply.remark
        self.create_topic(f"%RETRY%{name}", queues=1)

    def end_of(self, topic: str, queue_id: int = 0) -> int:
        """How many messages a queue ever got."""
        return int(self.ask(30, {"topic": topic, "queueId": queue_id}).fields["offset"])

    def committed(self, group: str, topic: str, queue_id: int = 0) -> int | None:
        reply = self.ask(14, {"consumerGroup": group, "topic": topic, "queueId": queue_id})
        return int(reply.fields["offset"]) if reply.code == 0 else None

    def members(self, group: str) -> list[str]:
        """The client ids of the consumers that are on line."""
        reply = self.ask(38, {"consumerGroup": group})
        return json.loads(reply.body)["consumerIdList"] if reply.code == 0 else []

    def wait_for_messages(self, topic: str, count: int = 1, limit_s: float = 30) -> None:
        """Return once queue 0 of a topic, which need not exist yet, got `count` messages."""
        deadline = time.monotonic() + limit_s
        while (got := self.end_of(topic)) < count:
            assert time.monotonic() < deadline, f"{got} of {count} messages in {topic} after {limit_s} s"
            time.sleep(_POLL_S)


_GROUP: Final = {
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeFromMinEnable": True,
    "notifyConsumerIdsChangedEnable": True,
    "whichBrokerWhenConsumeSlowly": 1,
}


def topic_fields(name: str, queues: int = 2) -> dict[str, object]:
    """The header of UPDATE_AND_CREATE_TOPIC as mqadmin fills it."""
    return {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
    }


class OurNamesrv(Child):
    """`sparrowmq namesrv` as an operator starts it."""

    def __init__(self, conf: Mapping[str, object] | None = None, port: int | None = None) -> None:
        home = scratch("sparrowmq")
        port = port or free_ports(1)[0]
        self.address = f"127.0.0.1:{port}"
        settings = {"listenPort": port, "kvConfigPath": f"{home.name}/kv.json"} | dict(conf or {})
        super().__init__(home, _command(home.name, "namesrv", settings))

    def _wait_ready(self) -> None:
        self.wait_for("boot success")


class OurBroker(Child):
    """`sparrowmq broker` as an operator starts it; registered when the context is entered."""

    def __init__(
        self, namesrv: str, store: Path, conf: Mapping[str, object] | None = None, port: int | None = None
    ) -> None:
        home = scratch("sparrowmq")
        self.store = store
        self.port = port or free_ports(1)[0]
        self.address = f"127.0.0.1:{self.port}"
        settings = SETTINGS | OUR_SETTINGS | {"listenPort": self.port, "storePathRootDir": store} | dict(conf or {})
        super().__init__(home, [*_command(home.name, "broker", settings), "-n", namesrv])

    def _wait_ready(self) -> None:
        self.wait_for("boot success")


@contextmanager
def running(name: str, folder: Path, conf: Mapping[str, object] | None = None) -> Iterator[Target]:
    """A name server and a broker of "ours" or "apache-4.9.7", which keeps its messages in `folder`.

    Apache's broker is killed at the end: it takes nine seconds to stop in order, and nobody looks at what it leaves.
    """
    with start_namesrv(name) as namesrv, start_broker(name, namesrv.address, folder / name, conf) as broker:
        yield Target(name, namesrv.address, broker.address)
        if name != OURS:
            broker.kill()


def start_namesrv(name: str) -> OurNamesrv | ApacheNamesrv:
    return OurNamesrv() if name == OURS else ApacheNamesrv(name.removeprefix("apache-"))


def start_broker(
    name: str, namesrv: str, store: Path, conf: Mapping[str, object] | None = None
) -> OurBroker | ApacheBroker:
    if name == OURS:
        return OurBroker(namesrv, store, conf)
    settings = SETTINGS | APACHES_SETTINGS | dict(conf or {})
    return ApacheBroker(name.removeprefix("apache-"), namesrv, store, settings)


def _command(home: str, role: str, settings: Mapping[str, object]) -> list[str]:
    conf = Path(home) / f"{role}.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return [sys.executable, "-m", "sparrowmq", role, "-c", str(conf)]
