"""A cluster of real processes in which things go wrong: two name servers, three masters, a slave, some load.

    broker-a    SYNC_MASTER, its log on a small disk, with a slave on a disk of its own
    broker-b    with accounts and an audit log
    broker-c    alone: a small disk, a certificate, few open files, and a clock that can be set
    broker-d    its log on a thin disk, whose image is on a disk that can be filled or frozen; a small disk
                for its index
    group-e     two members that elect their master by an etcd, group-e and member-e

The last three start with the first cause that needs them.

Each broker has a metrics port, and a log file in a folder of its own. Commands run as an operator types them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Final, Self

from sparrowmq.metrics.condition_kinds import KINDS
from tests.certificates import Pair, authority, signed
from tests.crash.loop_disk import LoopDisk
from tests.crash.not_here import NotHere
from tests.crash.skewed import Skew
from tests.crash.small_disk import SmallDisk
from tests.interop.apache import free_ports
from tests.interop.child import Child, scratch
from tests.interop.etcd import PROGRAM, LiveEtcd
from tests.interop.servers import OUR_SETTINGS, OURS, REPOSITORY, SETTINGS, OurNamesrv, Target

BY_NAME: Final = {kind.name: kind for kind in KINDS}
SEEN_S: Final = 60.0  # a condition shows within this time
OVER_S: Final = 90.0  # and ends within this time after its remedy
FILES: Final = 512  # that broker-c may open
ADMIN: Final = ("rocketmq2", "12345678")
USER: Final = ("RocketMQ", "12345678")
SECRET: Final = "between-master-and-slave"
ACCOUNTS: Final = f"""accounts:
  - accessKey: {ADMIN[0]}
    secretKey: '{ADMIN[1]}'
    admin: true
  - accessKey: {USER[0]}
    secretKey: '{USER[1]}'
    defaultTopicPerm: DENY
"""
_DISK_BYTES: Final = 192 << 20
_INDEX_BYTES: Final = 4 << 20  # some hours of the load
_POLL_S: Final = 0.2
_COMMAND_S: Final = 60.0
_CONDITION: Final = re.compile(r'^sparrowmq_condition\{.*\bcondition="([a-z_]+)"', re.MULTILINE)
_QUOTED: Final = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Remedy:
    """What doctor says about a condition.

    Attributes:
        what: the facts.
        text: what to do.
    """

    what: str
    text: str

    def names(self, *words: str) -> None:
        """Check that the remedy names what is done now."""
        assert all(word in self.text for word in words), (words, self.text)


class FieldServer(Child):
    """A server of the field that shows its conditions.

    Attributes:
        namesrv: the name servers that doctor asks about it; "" if doctor does not know it.
        address: by which doctor names it.
        metrics: the address of its metrics port.
        log: its log file, if it has one.
    """

    name: str
    namesrv: str
    address: str
    metrics: str
    log: Path | None = None

    def start_again(self) -> None:
        """Start it after `stop` or `kill`."""
        self.__enter__()

    def get(self, path: str) -> tuple[int, str]:
        """Return status and text of a page of the metrics port; 0 if it does not answer."""
        try:
            with urllib.request.urlopen(self.metrics + path, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    @property
    def conditions(self) -> set[str]:
        """The names of its conditions, by its metrics."""
        return set(_CONDITION.findall(self.get("/metrics")[1]))

    def said_all(self) -> str:
        """Return all lines of its log, those on stderr too."""
        return self.said() + (self.log.read_text() if self.log is not None and self.log.is_file() else "")


class FieldBroker(FieldServer):
    """A broker of the field: can be stopped, killed, frozen and started again."""

    log: Path

    def __init__(self, name: str, namesrv: str, folder: Path, settings: Mapping[str, object]) -> None:
        home = scratch(name)
        self.name = name
        self.namesrv = namesrv
        self.folder = folder
        self.store = folder / "small" / "store"
        self.log = folder / "log" / "broker.log"
        self.conf = folder / "conf" / "broker.conf"
        self.skew = Skew(folder / "skew")
        self.log.parent.mkdir()
        self.conf.parent.mkdir()
        port, shipping, metrics = free_ports(3)
        self.address = f"127.0.0.1:{port}"
        self.metrics = f"http://127.0.0.1:{metrics}"
        everything = {
            **SETTINGS,
            **OUR_SETTINGS,
            "brokerName": name,
            "listenPort": port,
            "haListenPort": shipping,
            "storePathRootDir": self.store,
            "mappedFileSizeCommitLog": 4 << 20,
            "flushDiskType": "SYNC_FLUSH",
            "registerNameServerPeriod": 10_000,
            "haHousekeepingInterval": 90_000,
            "haSendHeartbeatInterval": 1000,
            "diskMaxUsedSpaceRatio": 95,
            "metricsExporterType": "PROM",
            "metricsPromExporterPort": metrics,
            **settings,
        }
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in everything.items()))
        command = [sys.executable, "-m", "tests.crash.skewed", str(self.skew.file), "broker"]
        more = ["-c", str(self.conf), "-n", namesrv, "--log-file", str(self.log)]
        limit = ["prlimit", f"--nofile={FILES}:{FILES}"]
        super().__init__(home, [*limit, *command, *more], PYTHONPATH=str(REPOSITORY))

    def _wait_ready(self) -> None:
        self.wait_for("boot success")


class Field:
    """The cluster, while its context is entered.

    Attributes:
        a, slave, b, c: the brokers.
        names: the two name servers.
        disks: of the brokers, by their names.
        vouching: who signs certificates.
        others: servers of single causes, by their names.
        below: the disk with the image of the disk that has the log of broker-d.
        etcd: of the group; None before the group starts.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = ExitStack()
        self.disks: dict[str, SmallDisk] = {}
        self.more: dict[str, FieldBroker] = {}
        self.others: dict[str, FieldServer] = {}
        self.etcd: LiveEtcd | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        ports = free_ports(2)
        self.names = [self._stack.enter_context(OurNamesrv(port=port)) for port in ports]
        self.namesrv = ";".join(each.address for each in self.names)
        self.vouching = authority(self.folder)
        self.pair = Pair(self.folder / "c.pem", self.folder / "c.key")
        self.certify("first", days=300)
        self.accounts = self.folder / "accounts.yml"
        self.accounts.write_text(ACCOUNTS)
        self.audit = self.folder / "audit" / "audit.log"
        sync = {"brokerRole": "SYNC_MASTER", "slaveTimeout": 1000, "haSecret": SECRET}
        following = {"brokerRole": "SLAVE", "brokerId": 1, "haSecret": SECRET}
        guarded = {
            "haListenPort": "off",
            "aclEnable": "true",
            "aclFile": self.accounts,
            "auditLogPath": self.audit,
        }
        shown = {"tls.server.certPath": self.pair.certificate, "tls.server.keyPath": self.pair.key}
        self.a = self.broker("broker-a", sync)
        self.slave = self.broker("broker-a", following, "slave-a")
        self.b = self.broker("broker-b", guarded)
        self.c = self.broker("broker-c", shown)

    def broker(self, name: str, settings: Mapping[str, object], folder: str = "") -> FieldBroker:
        """Start a broker with these settings, on a disk of its own."""
        place = self.folder / (folder or name)
        disk = self._stack.enter_context(SmallDisk(place, _DISK_BYTES))
        self.disks[folder or name] = disk
        return self._stack.enter_context(FieldBroker(name, self.namesrv, place, settings))

    def keep(self, servers: ExitStack) -> None:
        """Let servers run until the context is left."""
        self._stack.enter_context(servers)

    def start_d(self) -> FieldBroker:
        """Start broker-d if it does not run yet. Raises: NotHere, this machine has no loop devices."""
        if "broker-d" not in self.more:
            place = self.folder / "broker-d"
            self.below = self._stack.enter_context(LoopDisk(place / "below", "ext4"))
            image = self.below.folder / "image"
            thin = LoopDisk(place, "ext4", image, "-O", "^has_journal")  # a journal would wait in each write
            self._stack.enter_context(thin)
            self.disks["index-d"] = self._stack.enter_context(SmallDisk(place / "index", _INDEX_BYTES))
            store = place / "small" / "store"
            store.mkdir(parents=True)
            (store / "index").symlink_to(self.disks["index-d"].folder)
            own = {"storePathCommitLog": thin.folder / "log", "maxHashSlotNum": 1000, "maxIndexNum": 20_000}
            self.more["broker-d"] = self._stack.enter_context(
                FieldBroker("broker-d", self.namesrv, place, own | {"haListenPort": "off"})
            )
        return self.more["broker-d"]

    def start_group(self) -> tuple[FieldBroker, FieldBroker]:
        """Start the group if it does not run yet; return its members. Raises: NotHere, there is no etcd."""
        if "group-e" not in self.more:
            if PROGRAM is None:
                raise NotHere("Debian: apt install etcd-server")
            self.etcd = self._stack.enter_context(LiveEtcd())
            elected = {
                "brokerRole": "SYNC_MASTER",
                "enableControllerMode": "true",
                "etcdEndpoints": self.etcd.endpoint,
                "masterLeaseTime": 4,
                "haMaxTimeSlaveNotCatchup": 300_000,  # a frozen member stays in sync
            }
            for number, name in enumerate(("group-e", "member-e"), 1):
                own = elected | {"brokerId": number, "haListenPort": free_ports(1)[0]}
                self.more[name] = self.broker("group-e", own, name)
        return self.more["group-e"], self.more["member-e"]

    @property
    def brokers(self) -> dict[str, FieldBroker]:
        first = {"broker-a": self.a, "slave-a": self.slave, "broker-b": self.b, "broker-c": self.c}
        return first | self.more

    def add(self, server: FieldServer) -> None:
        """Start a server that only one cause needs."""
        self.others[server.name] = self._stack.enter_context(server)

    @property
    def watched(self) -> dict[str, FieldServer]:
        """All servers that show conditions."""
        return {**self.brokers, **self.others}

    @property
    def servers(self) -> dict[str, Child]:
        """All processes that a service manager would start."""
        names = {f"namesrv-{number}": each for number, each in enumerate(self.names, 1)}
        return {**self.brokers, **names, **({"etcd": self.etcd} if self.etcd else {})}

    def certify(self, name: str, days: int) -> None:
        """Give broker-c another certificate."""
        pair = signed(self.folder, name, self.vouching, days=days)
        pair.key.replace(self.pair.key)
        pair.certificate.replace(self.pair.certificate)

    # What an operator does ------------------------------------------------------------------------------------------

    def run(self, *arguments: str, may_fail: bool = False, answer: str = "") -> str:
        """Run a command of sparrowmq, and answer its question; return what it prints."""
        environment = {
            **os.environ,
            "NAMESRV_ADDR": self.namesrv,
            "ROCKETMQ_ACCESS_KEY": ADMIN[0],
            "ROCKETMQ_SECRET_KEY": ADMIN[1],
            "PYTHONPATH": str(REPOSITORY),
        }
        command = [sys.executable, "-m", "sparrowmq", *arguments]
        done = subprocess.run(
            command,
            env=environment,
            input=answer,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )
        assert may_fail or done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def create(self, topic: str, broker: FieldBroker) -> None:
        """Create a topic at one broker only."""
        Target(OURS, self.namesrv, broker.address).create_topic(topic)

    def follow(self, remedy: Remedy, word: str, **names: str) -> str:
        """Run the command of a remedy as a shell does, with names in place of some words, and say yes to its question.

        Returns: what it prints.
        """
        command = next(text for text in _QUOTED.findall(remedy.text) if word in text)
        for each, name in names.items():
            command = command.replace(each, name)
        program, *words = shlex.split(command)
        assert program == "sparrowmq", command
        return self.run(*[each for word in words for each in sorted(glob(word)) or [word]], answer="y\n")

    def doctor(self, namesrv: str = "") -> tuple[int, list[Remedy]]:
        """Return the exit status of doctor, and what is wrong; by default at the name servers of the field."""
        environment = {**os.environ, "ROCKETMQ_ACCESS_KEY": ADMIN[0], "ROCKETMQ_SECRET_KEY": ADMIN[1]}
        environment["PYTHONPATH"] = str(REPOSITORY)
        command = [sys.executable, "-m", "sparrowmq", "doctor", "-n", namesrv or self.namesrv, "-o", "json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
        try:
            rows = json.loads(done.stdout)
        except ValueError:
            return done.returncode, [Remedy(done.stdout + done.stderr, "")]
        return done.returncode, [Remedy(row["what"], row["mend"] or "") for row in rows if row["verdict"] == "wrong"]

    # What shows -----------------------------------------------------------------------------------------------------

    def shown(self, kind: str, broker: FieldServer) -> Remedy:
        """Return what doctor says about a condition, once it shows in every place."""
        until(lambda: kind in broker.conditions, SEEN_S, f"{broker.name} does not show {kind}")
        status, text = broker.get("/readyz")
        assert f"{kind}: " in text and (status == 503 or not BY_NAME[kind].is_unready), text
        said = re.findall(rf"condition {kind}: (.*)\. What to do: (.*)", broker.said_all())
        assert said, f"the log does not name {kind}"
        if not broker.namesrv:
            return Remedy(*said[-1])
        deadline = time.monotonic() + SEEN_S
        while True:  # a full disk has room for a moment now and then
            status, wrong = self.doctor(broker.namesrv)
            found = said_of(kind, broker, wrong)
            if status == 1 and found is not None:
                return found
            assert time.monotonic() < deadline, (kind, status, wrong)

    def quiet(self, limit_s: float = OVER_S) -> None:
        """Return once no broker has a condition, and doctor finds nothing wrong."""
        until(
            lambda: all(each.get("/readyz") == (200, "ok\n") for each in self.brokers.values()),
            limit_s,
            lambda: f"not over: { {name: each.get('/readyz') for name, each in self.brokers.items()} }",
        )
        status, wrong = self.doctor()
        assert (status, wrong) == (0, []), wrong


def said_of(kind: str, broker: FieldServer, wrong: Sequence[Remedy]) -> Remedy | None:
    """Return what doctor says about a condition of a broker; None if it does not name it."""
    for each in wrong:
        # Without a name server doctor finds no broker.
        if kind == "unregistered" and "name server" in each.what:
            return each
        if f"({kind}, since " in each.what and broker.address in each.what:
            return each
    return None


def until(is_so: Callable[[], object], limit_s: float, what: str | Callable[[], str]) -> None:
    """Wait until a function returns something true. Raises: AssertionError, it did not in time."""
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(_POLL_S)
