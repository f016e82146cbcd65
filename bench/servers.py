"""The brokers that benchmarks compare, each a process of its own: ours, and Apache's in Java.

`ours+acl` and `apache-4.9.7+acl` have access control, and what is sent to them is signed. `+tls`: it is encrypted.
`ours+quotas` has quotas for each address and topic, which no load uses up. `ours-plain` runs the kernel uncompiled.
`before:PATH` is ours as it stands in another checkout, where `./run setup` was done: what a change is worth.

    with serving("ours", "SYNC_FLUSH") as broker:
        run_load("send", broker.port, pid=broker.pid)

All get the same settings; Apache's get the heap of 2 GB that its documents give a small machine. Stores lie in the
temporary folder, which should be on the disk whose speed matters.
"""

from __future__ import annotations

import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from bench.load import run_load
from tests.certificates import authority
from tests.certificates import signed as signed_by
from tests.interop.access_matrix import signed
from tests.interop.apache import ApacheBroker, ApacheNamesrv, free_ports
from tests.interop.child import START_LIMIT_S, Child, scratch
from tests.interop.kits import PeerMissing
from tests.interop.wire import Wire

OURS: Final = "ours"
PLAIN: Final = "ours-plain"
REFERENCE: Final = "apache-4.9.7"
PEERS: Final = (OURS, REFERENCE, "apache-5.4.0")
BEFORE: Final = "before"

TOPIC: Final = "bench"
QUEUES: Final = 4
_HEAP: Final = ("-Xms2g", "-Xmx2g")
_UPDATE_AND_CREATE_TOPIC: Final = 17

ACL: Final = "+acl"
TLS: Final = "+tls"
QUOTAS: Final = "+quotas"
_WAYS: Final = (ACL, TLS, QUOTAS)
_RULES: Final = "; ".join(f"{each}:* requests=100000000/s bytes=100GB/s" for each in ("address", "topic"))
KEYS: Final = ("benchmarks", "secretOfBenchmarks")
_ADMIN: Final = ("administrator", "secretOfAdministrator")
_ACCOUNTS: Final = f"""accounts:
- {{accessKey: {KEYS[0]}, secretKey: {KEYS[1]}, topicPerms: [bench=PUB|SUB], groupPerms: [bench-consumer=SUB]}}
- {{accessKey: {_ADMIN[0]}, secretKey: {_ADMIN[1]}, admin: true}}
"""


@dataclass(frozen=True)
class Peer:
    """A broker that serves, with its topic made. `listening_s` is how long its port took to answer.

    `asked` are options of the load generator: the keys that it signs with, and whether it encrypts. `store` is the
    folder of its store. `slave` is the process that follows it, if any does.
    """

    name: str
    port: int
    child: Child
    listening_s: float
    namesrv: str
    store: Path
    asked: Mapping[str, str] = field(default_factory=dict)
    slave: int | None = None

    @property
    def pid(self) -> int:
        return self.child.pid

    def kill(self) -> None:
        """SIGKILL; no harm to one that is gone."""
        self.child.kill()

    def start(self) -> None:
        """Start the killed one again; returns once it serves."""
        self.child.__enter__()


@contextmanager
def serving(name: str, flush: str = "ASYNC_FLUSH", **others: object) -> Iterator[Peer]:
    """One broker and its name server, on an empty store; `others` are settings of it. Raises: PeerMissing."""
    with ExitStack() as stack:
        store = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))) / "store"
        settings: dict[str, object] = {"flushDiskType": flush, "mappedFileSizeCommitLog": 1 << 30} | others
        with_acl, shown = name.endswith(ACL), re.sub(":[^+]*", "", name)
        if with_acl:
            accounts = store.with_name("plain_acl.yml")
            accounts.write_text(_ACCOUNTS)
            settings |= {"aclEnable": "true", "aclFile": accounts}
        if name.endswith(QUOTAS):
            settings["quotas"] = _RULES
        with_tls = name.endswith(TLS)
        tls = _certificates(store.parent) if with_tls else None
        name, _, checkout = _without_ways(name).partition(":")
        namesrv = _namesrv(name)
        stack.enter_context(namesrv)
        address = f"127.0.0.1:{namesrv.port}"
        broker = _broker(name, checkout, address, store, settings, tls)
        if isinstance(broker, _TimedApache):
            (broker.home / "conf" / "plain_acl.yml").write_text(_ACCOUNTS)
        begin = time.monotonic()
        stack.enter_context(broker)
        create_topic(broker.port, TOPIC, _ADMIN if with_acl else None)
        asked = dict(zip(("access_key", "secret_key"), KEYS, strict=True)) if with_acl else {}
        asked |= {"tls": "1"} if with_tls else {}
        yield Peer(shown, broker.port, broker, broker.listening_at - begin, address, store, asked)


@contextmanager
def followed(name: str, flush: str = "ASYNC_FLUSH") -> Iterator[Peer]:
    """The same as a SYNC_MASTER, with a slave of its own kind on a store of its own, which has all of it."""
    with serving(name, flush, brokerRole="SYNC_MASTER") as master, ExitStack() as stack:
        store = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-slave-")))
        kind, _, checkout = name.partition(":")
        settings = {"flushDiskType": flush, "mappedFileSizeCommitLog": 1 << 30}
        slave = _broker(kind, checkout, master.namesrv, store, settings | {"brokerRole": "SLAVE", "brokerId": 1})
        stack.enter_context(slave)
        deadline = time.monotonic() + START_LIMIT_S
        while run_load("send", master.port, topic=TOPIC, queues=QUEUES, window=1, count=1)["errors"]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no slave follows after {START_LIMIT_S} s:\n{slave.said()}")
        yield replace(master, slave=slave.pid)


@contextmanager
def serving_all(
    names: Sequence[str],
    flush: str = "ASYNC_FLUSH",
    serve: Callable[[str, str], AbstractContextManager[Peer]] = serving,
) -> Iterator[list[Peer]]:
    """Several brokers at once, so that rounds can alternate between them; what cannot run is named and left out."""
    with ExitStack() as stack:
        peers = []
        for name in names:
            try:
                peers.append(stack.enter_context(serve(name, flush)))
            except PeerMissing as missing:
                print(f"{name} is left out: {missing}", file=sys.stderr)
        yield peers


def create_topic(port: int, name: str, keys: tuple[str, str] | None = None) -> None:
    """Make a topic of QUEUES queues, or find it there."""
    topic: dict[str, object] = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": QUEUES,
        "writeQueueNums": QUEUES,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
    }
    if keys:
        topic = signed(topic, b"", *keys)
    with Wire(port) as wire:
        reply = wire.ask(_UPDATE_AND_CREATE_TOPIC, topic)
    if reply.code:
        raise RuntimeError(f"the broker at {port} makes no topic {name}: {reply.code} {reply.remark}")


class _OurNamesrv(Child):
    def __init__(self) -> None:
        home = scratch("bench-namesrv")
        self.port = free_ports(1)[0]
        super().__init__(home, _ours("mqnamesrv", home.name, {"listenPort": self.port}))

    def _wait_ready(self) -> None:
        self.wait_for("boot success")


class _OurBroker(Child):
    def __init__(
        self, namesrv: str, store: Path, settings: dict[str, object], checkout: str, **environment: str
    ) -> None:
        home = scratch("bench-broker")
        self.port = free_ports(4)[2]
        self.listening_at = 0.0
        usual = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "listenPort": self.port,
            "namesrvAddr": namesrv,
            "storePathRootDir": store,
        }
        super().__init__(home, _ours("mqbroker", home.name, usual | settings, checkout), **environment)

    def _wait_ready(self) -> None:
        self.listening_at = _wait_listening(self.port, self)
        self.wait_for("boot success")


class _TimedApache(ApacheBroker):
    listening_at = 0.0

    def _wait_ready(self) -> None:
        self.listening_at = _wait_listening(self.port, self)
        super()._wait_ready()


def _namesrv(name: str) -> _OurNamesrv | ApacheNamesrv:
    return ApacheNamesrv(name.removeprefix("apache-")) if name.startswith("apache-") else _OurNamesrv()


def _certificates(folder: Path) -> dict[str, object]:
    """The settings of a server with a certificate, which takes plain text too."""
    own = signed_by(folder, "server", authority(folder))
    return {
        "tls.server.mode": "permissive",
        "tls.test.mode.enable": "false",
        "tls.server.certPath": own.certificate,
        "tls.server.keyPath": own.key,
    }


def _broker(
    name: str,
    checkout: str,
    namesrv: str,
    store: Path,
    settings: dict[str, object],
    tls: dict[str, object] | None = None,
) -> _OurBroker | _TimedApache:
    """A broker of that name, not started yet; `checkout` is where that of BEFORE is."""
    if name.startswith("apache-"):
        jvm = [*_HEAP, *(f"-D{key}={value}" for key, value in (tls or {}).items())]
        return _TimedApache(name.removeprefix("apache-"), namesrv, store, settings, jvm=jvm)
    settings |= tls or {}
    return _OurBroker(namesrv, store, settings, checkout, SPARROWMQ_KERNEL="plain" if name == PLAIN else "")


def _ours(script: str, home: str, settings: dict[str, object], checkout: str = "") -> list[str]:
    """The command line of a server, from this checkout unless another one is named."""
    scripts = Path(checkout, ".venv", "bin") if checkout else Path(sys.executable).parent
    conf = Path(home) / f"{script}.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return [str(scripts / script), "-c", str(conf)]


def _without_ways(name: str) -> str:
    for way in _WAYS:
        name = name.removesuffix(way)
    return name


def is_known(name: str) -> bool:
    """Whether there is such a broker."""
    name = _without_ways(name)
    kind, _, checkout = name.partition(":")
    return name in (*PEERS, PLAIN) or (kind == BEFORE and Path(checkout, ".venv", "bin", "mqbroker").is_file())


def _wait_listening(port: int, child: Child) -> float:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return time.monotonic()
        if child.process is None or child.process.poll() is not None:
            raise ChildProcessError(f"ended before it listened:\n{child.said()}")
        time.sleep(0.005)
    raise TimeoutError(f"nothing listens on {port} after {START_LIMIT_S} s:\n{child.said()}")
