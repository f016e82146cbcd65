"""Plays every golden scenario against Apache and writes the packs: `python -m tests.golden.perform [part ...]`.

Parts: java, binary, mqadmin, registration. A part takes half a minute to two minutes; it needs Java and Maven.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.golden.record import Proxy, Tape, address_swaps, masks_of_ports, write_index, write_output
from tests.interop.apache import ApacheBroker, ApacheNamesrv, JavaProgram, java_program, mqadmin
from tests.interop.wire import Wire

CONVERSATION: Final = Path(__file__).parents[1] / "interop" / "java" / "Conversation.java"
SCENES: Final = ("send", "transaction", "pull", "push", "orderly", "sql", "request")
TAG_CONSUMER, ONLINE = "golden-push", "golden-online"

# Java makes unique ids from its address: with IPv4 the usual 32 digits, which the tape can mask.
_IPV4: Final = "-Djava.net.preferIPv4Stack=true"
# A half message is asked about after a second instead of a minute.
_QUICK: Final = {"transactionTimeOut": 1000, "transactionCheckInterval": 1000}
_UPDATE_AND_CREATE_TOPIC: Final = 17
_PULL_MESSAGE: Final = 11


@dataclass(frozen=True)
class Stage:
    """A cluster behind proxies: clients are given `namesrv`, tools that want a broker `broker`."""

    tape: Tape
    namesrv: str
    broker: str


@contextmanager
def stage(version: str, conf: Mapping[str, object] | None = None) -> Iterator[Stage]:
    """Name server and broker of one release with the topics of the conversation, everything recorded."""
    with ExitStack() as stack:
        store = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        namesrv = stack.enter_context(ApacheNamesrv(version))
        broker = stack.enter_context(ApacheBroker(version, namesrv.address, store, {**_QUICK, **(conf or {})}))
        tape = Tape([(str(store), "store"), (str(broker.home), "home")])
        front = stack.enter_context(Proxy(tape, "broker", broker.port))
        swaps = address_swaps(broker.port, front.port)
        front.retarget(broker.port, swaps)
        door = stack.enter_context(Proxy(tape, "namesrv", namesrv.port, swaps))
        tape.masks += [*masks_of_ports(broker.port, front.port), (door.address.encode(), b"127.0.0.1:9876")]
        with Wire(broker.port) as wire:
            for topic, queues in (("GoldenTopic", 2), ("GoldenRequest", 1)):
                assert wire.ask(_UPDATE_AND_CREATE_TOPIC, _topic(topic, queues)).code == 0
        time.sleep(1)  # Apache answers brokerStatus with an exception before its first sample of the second
        yield Stage(tape, door.address, front.address)


def java() -> None:
    for client, scenes in (("4.9.8", SCENES), ("5.4.0", SCENES[:5])):
        with stage("4.9.7") as cluster:
            for scene in scenes:
                _converse(cluster, client, scene, f"java-{client}/{scene}")


def binary() -> None:
    """The same client with the binary header, as far as the broker has a code that fits in 16 bits."""
    with stage("4.9.7") as cluster:
        for scene in ("send", "transaction", "pull", "push"):
            _converse(cluster, "4.9.8", scene, f"java-4.9.8-binary/{scene}", "-Drocketmq.serialize.type=ROCKETMQ")


def _converse(cluster: Stage, client: str, scene: str, scenario: str, *jvm: str) -> None:
    done = java_program(client, CONVERSATION, cluster.namesrv, scene, jvm=(_IPV4, *jvm))
    if not done.stdout.endswith("done\n"):
        raise RuntimeError(f"{scenario}: {done.stdout}\n{done.stderr}")
    print(scenario, cluster.tape.cut(scenario))


def admin() -> None:
    with stage("4.9.7") as cluster:
        for scene in ("send", "push"):
            assert java_program("4.9.8", CONVERSATION, cluster.namesrv, scene, jvm=[_IPV4]).stdout.endswith("done\n")
        cluster.tape.cut("mqadmin-4.9.7/clusterList")
        for name, arguments in _commands(cluster):
            _command(cluster, name, *arguments)
        with JavaProgram("4.9.8", CONVERSATION, cluster.namesrv, "online", jvm=[_IPV4]) as online:
            online.wait_for("online")
            for name, arguments in _commands_with_clients():
                _command(cluster, name, *arguments)


def _command(cluster: Stage, scenario: str, *arguments: str) -> None:
    done = mqadmin("4.9.7", scenario.partition("-")[0], *arguments, "-n", cluster.namesrv, jvm=[_IPV4])
    path = f"mqadmin-4.9.7/{scenario}"
    size = cluster.tape.cut(path, lambda code: code != _PULL_MESSAGE or scenario.startswith(("consume", "query")))
    if scenario != "consumeMessage":  # pages of "no new message"
        write_output(path, done.stdout + done.stderr, cluster.tape.masks)
    print(path, size, done.returncode, done.stderr[:100])


def _commands(cluster: Stage) -> Iterator[tuple[str, list[str]]]:
    topic, group, everywhere = ["-t", "GoldenTopic"], ["-g", TAG_CONSUMER], ["-c", "DefaultCluster"]
    yield "clusterList", []
    yield "brokerStatus", ["-b", cluster.broker]
    yield "updateTopic", ["-t", "AdminTopic", "-r", "4", "-w", "4", *everywhere]
    yield "updateSubGroup", ["-g", "admin-group", *everywhere]
    yield "updateTopicPerm", ["-t", "AdminTopic", "-p", "4", *everywhere]
    yield "topicList", []
    yield "topicRoute", topic
    yield "topicClusterList", topic
    yield "topicStatus", topic
    yield "consumerProgress", group
    yield "consumerProgress-all", []
    yield "resetOffsetByTime-offline", [*group, *topic, "-s", "0"]
    yield "queryMsgById", ["-i", _first_id(cluster)]
    yield "queryMsgByKey", [*topic, "-k", "key-1"]
    yield "queryMsgByOffset", [*topic, "-b", "broker-a", "-i", "0", "-o", "0"]
    yield "queryCq", [*topic, "-q", "0", "-i", "0", "-c", "2", "-b", cluster.broker]
    yield (
        "sendMessage",
        [*topic, "-p", "from the tool", "-k", "key-tool", "-c", "TagTool", "-b", "broker-a", "-i", "0"],
    )
    yield "consumeMessage", topic
    yield "cloneGroupOffset", ["-s", TAG_CONSUMER, "-d", "cloned-group", *topic]
    yield "statsAll", ["-a", *topic]
    yield "brokerConsumeStats", ["-b", cluster.broker]
    yield "updateKvConfig", ["-s", "GOLDEN", "-k", "colour", "-v", "blue"]
    yield "deleteKvConfig", ["-s", "GOLDEN", "-k", "colour"]
    yield "updateOrderConf", [*topic, "-v", "broker-a:2", "-m", "put"]
    yield "wipeWritePerm", ["-b", "broker-a"]
    yield "addWritePerm", ["-b", "broker-a"]
    yield "cleanExpiredCQ", ["-b", cluster.broker]
    yield "deleteSubGroup", ["-g", "admin-group", *everywhere]
    yield "deleteTopic", ["-t", "AdminTopic", *everywhere]


def _commands_with_clients() -> Iterator[tuple[str, list[str]]]:
    topic, group = ["-t", "GoldenTopic"], ["-g", ONLINE]
    yield "consumerConnection", group
    yield "producerConnection", ["-g", "golden-online-producer", *topic]
    yield "consumerStatus", group
    yield "consumerProgress-online", [*group, "-s", "true"]
    yield "resetOffsetByTime", [*group, *topic, "-s", "0"]


def _first_id(cluster: Stage) -> str:
    port = int(cluster.broker.rpartition(":")[2])
    return f"7F000001{port:08X}{0:016X}"


def registration() -> None:
    """A broker comes, asks whether it must register again, and goes."""
    for version in ("4.9.7", "5.4.0"):
        for name, compressed in (("plain", "false"), ("compressed", "true")):
            with ExitStack() as stack:
                store = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                namesrv = stack.enter_context(ApacheNamesrv(version))
                tape = Tape()
                door = stack.enter_context(Proxy(tape, "namesrv", namesrv.port))
                conf = {
                    "compressedRegister": compressed,
                    "forceRegister": "false",
                    "registerNameServerPeriod": 10_000,
                }
                broker = _Newcomer(version, door.address, store, conf)
                tape.masks += masks_of_ports(broker.port)
                with broker:
                    time.sleep(22)  # the data version is asked about every 10 s
                print(f"registration-{version}/{name}", tape.cut(f"registration-{version}/{name}"))


class _Newcomer(ApacheBroker):
    """Registers in its own time. 5.4.0 never does with a compressed body: it says that the body is not compressed."""

    def _wait_ready(self) -> None:
        self.wait_for("boot success")


def _topic(name: str, queues: int) -> dict[str, object]:
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


PARTS: Final = {"java": java, "binary": binary, "mqadmin": admin, "registration": registration}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
    write_index()
