"""A query under kills: rows are sent bit by bit, and somebody dies while each bit is copied.

    rows ─> topic "from" ─> the query: a driver, two executors with their Python workers ─> topic "to"

The driver is its JVM and its Python; what it leaves behind, executors and workers, goes on writing until it notices.
A broker that dies is started again on the same store. Everybody dies by SIGKILL, and in the midst of a batch: when
brokers have rows of it that no driver has committed, so that these come again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
import pyarrow as pa

from sparrowmq.protocol.messages import batch as batches
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.names import STAGED_TOPIC
from sparrowmq.spark.options import EXACTLY_ONCE, SinkOptions, SourceOptions, parse
from sparrowmq.spark.sink.sender import Sender
from sparrowmq.spark.source.partition_ranges import between
from sparrowmq.spark.source.query_offsets import OffsetClient
from sparrowmq.spark.source.row_reader import Rows, read
from sparrowmq.spark.worker import connect
from tests.interop.apache import ApacheBroker
from tests.interop.servers import REPOSITORY, OurBroker, Target, start_broker, start_namesrv

QUEUES: Final = 4
MASTER: Final = "local-cluster[2,1,700]"  # so executors are processes of their own
BATCHES: Final = 2  # of Spark for the rows between two kills
START_LIMIT_S: Final = 120.0
COPY_LIMIT_S: Final = 180.0  # and a second for `ROWS_PER_S`
AT_WORK_S: Final = 1.0  # at most, from a batch's first row to a death
ROWS_PER_S: Final = 1000  # of a task, so that a batch takes longer than that: two tasks, one after the other
AWAY_S: Final = 2.0  # at most, a broker
_COPY: Final = pa.schema([("msgId", pa.string()), ("body", pa.string())])
_STAGED: Final = pa.schema([("properties", pa.map_(pa.string(), pa.string())), ("body", pa.binary())])

# Who dies how often. Drivers and executors cost the others' time: they take ten seconds to start, or more.
VICTIMS: Final = {"driver": 1, "executor": 1, "worker": 4, "broker": 3}


@dataclass(frozen=True, slots=True)
class Result:
    """What one run showed.

    Attributes:
        lost: rows that are not there.
        doubled: rows that are there twice; with idempotent, after those with the same id were dropped.
        repeated: how many rows have an id that others have, too.
        met: how many of the kills found a batch half done.
        again: rows that came to a broker more than once: `repeated`, or of what is staged the part that is never seen.
    """

    rows: int
    kills: dict[str, int]
    lost: list[int]
    doubled: list[int]
    repeated: int
    met: int
    again: int


class Rig:
    """One run.

    Args:
        kind: of the servers, as `tests.interop.servers` names them.
    """

    def __init__(
        self, folder: Path, seed: int, guarantee: str, kind: str, brokers: int, say: Callable[[str], None]
    ) -> None:
        self._folder = folder
        self._seed = seed
        self._guarantee = guarantee
        self._kind = kind
        self._say = say
        self._chance = random.Random(f"{guarantee} {kind} {seed}")
        self._namesrv = start_namesrv(kind)
        self._brokers = [self._broker(f"broker-{number}") for number in range(brokers)]
        self._checkpoint = folder / "checkpoint"
        self._driver: subprocess.Popen[bytes] | None = None
        self._others: set[psutil.Process] = set()  # that drivers left behind
        self._sent = 0
        self._met = 0

    def run(self, rows: int, kills: int) -> Result:
        """Send that many rows, kill so often, and count. Raises: AssertionError, if the query does not go on."""
        begun, killed = time.monotonic(), Counter[str]()
        with ExitStack() as stack:
            stack.enter_context(self._namesrv)
            for broker in self._brokers:
                stack.enter_context(broker)
                self._target(broker).create_topic("from", "to", queues=QUEUES)
            stack.callback(self._end)
            per_kill = rows // (kills + 1)
            self._start(per_kill // BATCHES)
            for number in range(kills):
                self._send(per_kill)
                self._wait_for_rows_of_a_batch()
                time.sleep(self._chance.uniform(0, AT_WORK_S))
                self._met += self._planned() > self._committed()
                victim = self._kill(per_kill // BATCHES)
                killed[victim] += 1
                self._say(f"kill {number + 1}: {victim}, {time.monotonic() - begun:.0f} s")
            self._send(rows - self._sent)
            found = self._copied()
            staged = self._staged() if self._guarantee == EXACTLY_ONCE else 0
            if self._kind != "ours":
                for broker in self._brokers:
                    broker.kill()  # Apache's takes nine seconds to stop
        ids = dict(found)
        there = Counter(int(body) for _, body in (found if self._guarantee == EXACTLY_ONCE else ids.items()))
        return Result(
            rows=rows,
            kills=dict(sorted(killed.items())),
            lost=[row for row in range(rows) if row not in there],
            doubled=[row for row, times in there.items() if times > 1],
            repeated=len(found) - len(ids),
            met=self._met,
            again=staged - rows if staged else len(found) - len(ids),
        )

    def _broker(self, name: str) -> OurBroker | ApacheBroker:
        conf = {"brokerName": name, "mappedFileSizeCommitLog": 64 << 20}
        return start_broker(self._kind, self._namesrv.address, self._folder / name, conf)

    # Rows ------------------------------------------------------------------------------------------------------------

    def _send(self, count: int) -> None:
        options = parse(SinkOptions, {"nameServer": self._namesrv.address, "topic": "from"})
        with connect(options) as network:
            sender = Sender(network, options)
            for number in range(self._sent, self._sent + count):
                sender.put("from", BatchPart(b"%d" % number, b"UNIQ_KEY\x01id-%d\x02" % number))
            sender.finish()
        self._sent += count

    def _copied(self) -> list[tuple[str, str]]:
        """Ids and bodies of all that is copied, once it is all there and the query has nothing more to do."""
        limit_s = COPY_LIMIT_S + self._sent / ROWS_PER_S
        deadline, found = time.monotonic() + limit_s, list[tuple[str, str]]()
        while len({body for _, body in found}) < self._sent:
            assert time.monotonic() < deadline, self._why(f"{len(found)} of {self._sent} rows are copied")
            time.sleep(1)
            found = self._read()
        while (planned := self._planned()) != self._committed():
            assert time.monotonic() < deadline, self._why(f"batch {planned} does not end")
            time.sleep(0.1)
        return self._read()

    def _read(self) -> list[tuple[str, str]]:
        parts = self._parts("to", _COPY)
        return [pair for part in parts for pair in zip(part["msgId"], part["body"], strict=True)]

    def _staged(self) -> int:
        """How many rows were ever staged at our brokers (`broker/staging/staged_batches.py`)."""
        return sum(
            len(batches.decode(body))
            for part in self._parts(STAGED_TOPIC, _STAGED)
            for properties, body in zip(part["properties"], part["body"], strict=True)
            if dict(properties)["STAGED_KIND"] == "part"
        )

    def _parts(self, topic: str, columns: pa.Schema) -> list[dict[str, list[Any]]]:
        """All that a topic has."""
        options = parse(SourceOptions, {"nameServer": self._namesrv.address, "topic": topic})
        with connect(options) as network:
            plan = OffsetClient(network, options)
            bounds = plan.bounds()
            ranges = between(plan.starts(bounds, otherwise="earliest"), plan.ends(bounds))
            return [part.to_pydict() for part in read(network, ranges, Rows(columns, options), options)]

    def _received(self) -> int:
        """Grows whenever brokers get rows of the query: messages, or the requests that stage them."""
        is_staged = self._guarantee == EXACTLY_ONCE
        topic, queues = (STAGED_TOPIC, 1) if is_staged else ("to", QUEUES)
        targets = [self._target(broker) for broker in self._brokers]
        return sum(target.end_of(topic, queue) for target in targets for queue in range(queues))

    def _target(self, broker: OurBroker | ApacheBroker) -> Target:
        return Target(self._kind, self._namesrv.address, broker.address)

    # The query -------------------------------------------------------------------------------------------------------

    def _start(self, per_batch: int) -> None:
        source = {
            "nameServer": self._namesrv.address, "topic": "from", "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(per_batch), "minPartitions": "4",
        }  # fmt: skip
        sink = {
            "nameServer": self._namesrv.address, "topic": "to", "deliveryGuarantee": self._guarantee,
            "sendBatchRows": "100", "rowsPerSecondPerTask": str(ROWS_PER_S),
        }  # fmt: skip
        if self._guarantee == EXACTLY_ONCE:
            sink |= {"brokerName": "broker-0", "allBrokers": "true"}
        command = [sys.executable, "-m", "tests.spark.kills.driver", str(self._checkpoint), MASTER]
        with (self._folder / "driver.log").open("ab") as log:
            self._driver = subprocess.Popen(
                [*command, json.dumps(source), json.dumps(sink)],
                cwd=REPOSITORY, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def _wait_for_rows_of_a_batch(self) -> None:
        """Return when brokers get rows of a batch that is not committed."""
        before, deadline = -1, time.monotonic() + START_LIMIT_S
        while True:
            assert self._driver is not None and self._driver.poll() is None, self._why("the query has ended")
            assert time.monotonic() < deadline, self._why("no rows of a batch come")
            if self._planned() == self._committed():
                before = -1
            elif before < 0:
                before = self._received()
            elif self._received() > before:
                return
            time.sleep(0.02)

    def _planned(self) -> int:
        return _newest(self._checkpoint / "offsets")

    def _committed(self) -> int:
        return _newest(self._checkpoint / "commits")

    def _why(self, what: str) -> str:
        said = (self._folder / "driver.log").read_text(errors="replace")
        return f"{what}; seed {self._seed}; the driver said:\n{said[-4000:]}"

    # Deaths ----------------------------------------------------------------------------------------------------------

    def _kill(self, per_batch: int) -> str:
        """Kill somebody; returns who it was."""
        victim = self._chance.choices(list(VICTIMS), list(VICTIMS.values()))[0]
        family = self._family()
        if victim in ("executor", "worker"):
            found = [each for each in family if _says(each, "CoarseGrainedExecutorBackend")]
            executor = self._chance.choice(sorted(found, key=lambda each: each.pid)) if found else None
            if executor is not None and (workers := _children(executor)):
                # One of them reads and one writes, so they die together: alone, one that has read does no harm.
                _end([executor] if victim == "executor" else workers)
                return victim
            victim = "driver"  # Nobody else is at work now; so it is the driver who dies.
        if victim == "driver":
            self._others |= set(family)
            _end([each for each in family if _says(each, "SparkSubmit")])
            self._leave()
            self._start(per_batch)
        else:
            broker = self._chance.choice(self._brokers)
            broker.kill()
            time.sleep(self._chance.uniform(0, AWAY_S))
            broker.__enter__()
        return victim

    def _family(self) -> list[psutil.Process]:
        assert self._driver is not None
        return _children(psutil.Process(self._driver.pid)) if self._driver.poll() is None else []

    def _leave(self) -> None:
        if self._driver is not None:
            self._driver.kill()
            self._driver.wait()

    def _end(self) -> None:
        """Nobody is left."""
        self._others |= set(self._family())
        self._leave()
        _end(self._others)


def _newest(folder: Path) -> int:
    """The newest batch in one of the checkpoint's logs."""
    return max((int(each.name) for each in folder.glob("[0-9]*") if each.name.isdigit()), default=-1)


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _says(process: psutil.Process, mark: str) -> bool:
    """Whether a process was started with this among its arguments."""
    try:
        return any(mark in each for each in process.cmdline())
    except psutil.Error:
        return False


def _end(processes: Iterable[psutil.Process]) -> None:
    for each in processes:
        try:
            os.kill(each.pid, signal.SIGKILL) if each.is_running() else None
        except (psutil.Error, ProcessLookupError):
            continue
