"""Apache RocketMQ as real processes: name server, broker, admin tool and Java clients.

    with ApacheNamesrv("4.9.7") as namesrv, ApacheBroker("4.9.7", namesrv.address, tmp_path / "store") as broker:
        mqadmin("4.9.7", "clusterList", "-n", namesrv.address)
        java_program("4.9.8", Path("Producer.java"), namesrv.address)

Every process gets free ports, small heaps and a scratch home of its own (logs, default files), which goes when it
stops; the store is the caller's. Leaving the context sends SIGTERM, on which a broker flushes and unregisters.
A machine without Java or Maven raises `kits.PeerMissing`, a skip.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tests.interop.child import START_LIMIT_S, Child, scratch
from tests.interop.kits import client_jars, java, proxy_jars, server_jars
from tests.interop.wire import Wire

SMALL_HEAP: Final = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# As `sparrowmq.testing`: tests run where disks are nearly full.
_FULL_DISK: Final = "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.95"
# By default servers make themselves a certificate or two when they start, which takes a second for each.
PLAIN: Final = (*SMALL_HEAP, "-Dtls.server.mode=disabled")

# Netty and the store reach into the JDK; Java 17 must be told to let them.
_OPENS: Final = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.nio", "sun.nio.ch", "jdk.internal.ref", "java.lang", "java.util")
)
# 4.9 exits at once without its three files; 5.x shades logback under another name and talks to stdout without one.
_LOGBACK: Final = """<configuration>
<appender name="file" class="{shade}ch.qos.logback.core.FileAppender"><file>{file}</file>
<encoder><pattern>%d %-5level %logger{{0}} - %msg%n</pattern></encoder></appender>
<root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""
_UPDATE_BROKER_CONFIG: Final = 25
_GET_BROKER_CLUSTER_INFO: Final = 106


class JavaProcess(Child):
    """A JVM with a ROCKETMQ_HOME of its own."""

    def __init__(self, jars: Path, jvm: Iterable[str], main: Iterable[str]) -> None:
        home = scratch("apache")
        write_logback(Path(home.name))
        super().__init__(home, [*_java(jars, Path(home.name)), *jvm, *main], ROCKETMQ_HOME=home.name)


class ApacheNamesrv(JavaProcess):
    """A name server; `address` is what clients and brokers are given."""

    def __init__(self, version: str, port: int | None = None, jvm: Iterable[str] = PLAIN) -> None:
        super().__init__(server_jars(version), jvm, ["org.apache.rocketmq.namesrv.NamesrvStartup"])
        self.port = port or free_ports(1)[0]
        self.address = f"127.0.0.1:{self.port}"
        conf = self.home / "namesrv.conf"
        conf.write_text(_properties({"listenPort": self.port, "kvConfigPath": self.home / "kvConfig.json"}))
        self._command += ["-c", str(conf)]

    def _wait_ready(self) -> None:
        self.wait_for("boot success")


class ApacheBroker(JavaProcess):
    """A broker, registered with its name server when the context is entered."""

    def __init__(
        self,
        version: str,
        namesrv: str,
        store: Path,
        conf: Mapping[str, object] | None = None,
        port: int | None = None,
        jvm: Iterable[str] = PLAIN,
    ) -> None:
        super().__init__(server_jars(version), jvm, ["org.apache.rocketmq.broker.BrokerStartup"])
        self.port = port or free_ports(4)[2]  # 4.9 also listens on port - 2, and on haListenPort
        self.address = f"127.0.0.1:{self.port}"
        self.store = store
        self._namesrv = namesrv
        file = self.home / "broker.conf"
        file.write_text(_properties(self._settings() | dict(conf or {})))
        self._command += ["-c", str(file)]

    def _settings(self) -> dict[str, object]:
        return {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": self.port,
            "haListenPort": self.port + 1,
            "namesrvAddr": self._namesrv,
            "storePathRootDir": self.store,
            "storePathCommitLog": self.store / "commitlog",
            "mappedFileSizeCommitLog": 128 << 20,
            "enablePropertyFilter": "true",
        }

    def _wait_ready(self) -> None:
        self.wait_for("boot success")
        self._wait_registered()

    def _wait_registered(self) -> None:
        """Wait until the name server lists this broker.

        5.x registers when it has found its name server alive, and looks again only after 10 s: it often says
        "boot success" unregistered. Setting a permission that it already has makes it register at once.
        """
        deadline = time.monotonic() + START_LIMIT_S
        host, _, port = self._namesrv.partition(":")
        with Wire(int(port), host) as namesrv, Wire(self.port) as broker:
            while self.address.encode() not in namesrv.ask(_GET_BROKER_CLUSTER_INFO).body:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not registered at {self._namesrv} within {START_LIMIT_S} s:\n{self.said()}")
                broker.ask(_UPDATE_BROKER_CONFIG, body=b"brokerPermission=6")
                time.sleep(0.1)


class ApacheProxy(ApacheBroker):
    """A broker inside the gRPC proxy of its release, in one process: LOCAL mode."""

    def __init__(
        self,
        version: str,
        namesrv: str,
        store: Path,
        conf: Mapping[str, object] | None = None,
        port: int | None = None,
        jvm: Iterable[str] = PLAIN,
    ) -> None:
        super().__init__(version, namesrv, store, conf, port, jvm)
        grpc, remoting = free_ports(2)
        self.grpc_address = f"127.0.0.1:{grpc}"
        file = self.home / "proxy.json"
        settings = {"grpcServerPort": grpc, "remotingListenPort": remoting, "namesrvAddr": namesrv}
        file.write_text(json.dumps(settings | {"rocketMQClusterName": "DefaultCluster", "proxyMode": "LOCAL"}))
        main = ["org.apache.rocketmq.proxy.ProxyStartup", "-pm", "LOCAL", "-n", namesrv]
        self._command = [*_java(proxy_jars(version), self.home), *jvm, *main]
        self._command += ["-bc", str(self.home / "broker.conf"), "-pc", str(file)]

    def _wait_ready(self) -> None:
        self.wait_for("rocketmq-proxy startup successfully")
        self._wait_registered()


class JavaProgram(JavaProcess):
    """A single-file Java source left running with a client's jars; talk to it through `said` and `wait_for`."""

    def __init__(self, version: str, source: Path, *args: str, jvm: Iterable[str] = ()) -> None:
        super().__init__(client_jars(version), (*SMALL_HEAP, *jvm), [str(source.resolve()), *args])


def mqadmin(
    version: str,
    *args: str,
    jvm: Iterable[str] = (),
    limit_s: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run one command of the admin tool to its end. It tells failures on stderr, with exit status 0."""
    main = (*jvm, "org.apache.rocketmq.tools.command.MQAdminStartup", *args)
    return _run(server_jars(version), main, limit_s)


def java_program(
    version: str,
    source: Path,
    *args: str,
    jvm: Iterable[str] = (),
    limit_s: float = 120,
    jars: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Compile and run a single-file Java source to its end, with a Java client's jars on the class path, or `jars`."""
    return _run(jars or client_jars(version), (*jvm, str(source.resolve()), *args), limit_s)


_CHANCE: Final = random.SystemRandom()  # processes of one test run must not choose the same


def free_ports(count: int) -> range:
    """`count` neighbouring ports that nobody listens on, below those that the system gives to connections."""
    for _ in range(100):
        start = _CHANCE.randrange(12_000, 30_000)
        if all(is_free(port) for port in range(start, start + count)):
            return range(start, start + count)
    raise OSError(f"no {count} neighbouring free ports")


def write_logback(home: Path) -> None:
    """Give ROCKETMQ_HOME the logging configuration without which 4.9 does not start."""
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for part in ("namesrv", "broker", "tools", "proxy"):
        (home / "conf" / f"logback_{part}.xml").write_text(_LOGBACK.format(shade="", file=home / f"{part}.log"))
    shaded = _LOGBACK.format(shade="org.apache.rocketmq.logging.", file=home / "rocketmq.log")
    (home / "conf" / "rmq.logback.xml").write_text(shaded)


def _run(jars: Path, main: Iterable[str], limit_s: float) -> subprocess.CompletedProcess[str]:
    with scratch("apache") as folder:
        home = Path(folder)
        write_logback(home)
        command = [*_java(jars, home), *SMALL_HEAP, *main]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=limit_s,
            env=_env(home),
            cwd=home,  # consumerStatus leaves files where it stands
            stdin=subprocess.DEVNULL,
        )


def _java(jars: Path, home: Path) -> list[str]:
    logging = f"-Drmq.logback.configurationFile={home / 'conf' / 'rmq.logback.xml'}"
    return [java(), *_OPENS, _FULL_DISK, f"-Duser.home={home}", logging, "-cp", f"{jars}/*"]


def _env(home: Path) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
    return ours | {"ROCKETMQ_HOME": str(home)}


def _properties(settings: Mapping[str, object]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
