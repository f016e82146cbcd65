"""A Kafka broker for benchmarks: KRaft, one node, its topics with four partitions."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from bench.listening import Listening
from tests.interop.apache import free_ports
from tests.interop.child import START_LIMIT_S, scratch
from tests.interop.kits import java, kafka_jars

PARTITIONS: Final = 4
_CLUSTER: Final = "c3BhcnJvd21xLWJlbmNoLQ"
_HEAP: Final = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")


class KafkaBroker(Listening):
    """Serves at `address` while its context is entered. Raises: PeerMissing."""

    def __init__(self) -> None:
        port, controller = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        home = scratch("kafka")
        settings = Path(home.name, "server.properties")
        settings.write_text(
            "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
            f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
            f"listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            f"log.dirs={home.name}/logs\nnum.partitions={PARTITIONS}\noffsets.topic.replication.factor=1\n"
        )
        program = [java(), "-cp", f"{kafka_jars()}/*"]
        told = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(settings)]
        subprocess.run([*program, *told], check=True, capture_output=True, timeout=START_LIMIT_S)
        super().__init__(home, [*program, *_HEAP, "kafka.Kafka", str(settings)])
