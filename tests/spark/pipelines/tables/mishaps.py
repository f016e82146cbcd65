"""A table that is filled as Spark does it, without Spark, and mishaps to its folders.

The stream keeps a checkpoint as Spark does: `offsets/N` before batch N, `commits/N` behind it. A batch without
`commits/N` is repeated. A run may die at each step of a batch.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import dataclass, field
from datetime import date
from itertools import count
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from sparrowmq.errors import BadStore, ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.lake.lake import TableLocation, open_lake
from sparrowmq.spark.pipelines.lake.staged_files import Staged, StagedFile
from sparrowmq.spark.pipelines.tables.table_settings import (
    TableSettings,
    load_checked_settings,
    save_settings,
    state_folder,
)
from sparrowmq.spark.pipelines.tables.table_writer import ERRORS, ROWS, TableProgress
from sparrowmq.spark.source.partition_ranges import Offsets, to_json
from tests.spark.pipelines.lake.tables import DAY, rows_of

_QUEUES = 3
_STEPS = ("planned", ROWS, ERRORS, "never", "never", "never", "never")


class Killed(Exception):
    """The run died."""


@dataclass
class Topic:
    """Messages of some queues: a row, or an error if the number is divisible by 4."""

    chance: Random
    queues: dict[int, list[int]] = field(default_factory=lambda: {queue: [] for queue in range(_QUEUES)})
    sent: int = 0

    def send(self) -> None:
        for _ in range(self.chance.randrange(1, 8)):
            self.queues[self.chance.randrange(_QUEUES)].append(self.sent)
            self.sent += 1

    def end(self) -> Offsets:
        return Offsets({MessageQueue("t", "b", queue): len(each) for queue, each in self.queues.items()}, {})

    def wanted(self, table: str) -> Counter[int]:
        return Counter(number for number in range(self.sent) if (number % 4 == 0) == (table == ERRORS))


class Run:
    """One start of the pipeline. Raises: ConfigError, as the pipeline."""

    def __init__(self, root: Path | Address, state: Path, kind: str, topic: Topic) -> None:
        self.root, self.topic, self.kind = root, topic, kind
        self.state, self.checkpoint = state, state / "checkpoint"
        if state != state_folder(root):  # a run elsewhere has a copy of the state, and calls it so
            raise AssertionError("a copy is swapped in before a run")
        self.settled = load_checked_settings(root, TableSettings("t", kind, "raw", None)) or TableSettings(
            "t", kind, "raw", None
        )
        errors = root.with_name(f"{root.name}.errors")
        writer = self.settled.writer
        self.lakes = {
            ROWS: open_lake(kind, TableLocation(root, state, writer)),
            ERRORS: open_lake(kind, TableLocation(errors, state / "errors", writer)),
        }
        self.progress = TableProgress(root, self.settled, self.lakes)
        self.to_json: list[str] = []
        place = self.progress.resume(self.checkpoint, self.to_json.append)
        if place is None and self._planned() < 0:
            self.settled.begin = {}
        save_settings(state, self.settled)
        self.begin = dict(place["topics"]) if place is not None else {}

    def batches(self, most: int, death: str = "never") -> None:
        """Do batches of what there is. Raises: Killed, at the step `death` of the last one."""
        for number in range(most):
            self._batch(death if number == most - 1 else "never")

    def _batch(self, death: str) -> None:
        last = self._planned()
        batch = last if last >= 0 and not (self.checkpoint / "commits" / str(last)).exists() else last + 1
        if batch > last:
            self._plan(batch)
        if death == "planned":
            raise Killed
        start, end = self._offsets(batch - 1), self._offsets(batch)
        rows = self._messages(start, end)
        number = batch + self.settled.first
        bad = [each for each in rows if each[2] % 4 == 0]
        good = [each for each in rows if each[2] % 4]
        if good:
            self.progress.add(ROWS, number, lambda had: self._staged(ROWS, number, good, had), is_half=bool(bad))
        if death == ROWS:
            raise Killed
        if bad:
            self.progress.add(ERRORS, number, lambda had: self._staged(ERRORS, number, bad, had))
        if death == ERRORS:
            raise Killed
        self._write("commits", batch, "v1\n{}")

    def is_read(self) -> bool:
        """Whether all messages are in the tables."""
        last = self._planned()
        end = {str(queue): len(each) for queue, each in self.topic.queues.items()}
        return self._offsets(last) == end and (self.checkpoint / "commits" / str(last)).exists()

    def _plan(self, batch: int) -> None:
        start, end = self._offsets(batch - 1), to_json(self.topic.end())["topics"]
        assert isinstance(end, dict)
        chosen = {
            queue: self.topic.chance.randint(start.get(queue, 0), offset) for queue, offset in end["t"]["b"].items()
        }
        if self.topic.chance.random() < 0.5:
            chosen = end["t"]["b"]
        said = json.dumps({"v": 1, "topics": {"t": {"b": chosen}}})
        (self.checkpoint / "metadata").parent.mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metadata").write_text("{}")
        self._write("offsets", batch, f"v1\n{{}}\n{said}")

    def _write(self, name: str, batch: int, said: str) -> None:
        path = self.checkpoint / name / str(batch)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(said)

    def _planned(self) -> int:
        return max((int(path.name) for path in (self.checkpoint / "offsets").glob("*")), default=-1)

    def _offsets(self, batch: int) -> dict[str, int]:
        path = self.checkpoint / "offsets" / str(batch)
        if not path.exists():
            resumed = self.settled.resumed or {"topics": {}}
            found: dict[str, int] = resumed["topics"].get("t", {}).get("b", {})
            return found
        offsets: dict[str, int] = json.loads(path.read_text().splitlines()[-1])["topics"]["t"]["b"]
        return offsets

    def _messages(self, start: dict[str, int], end: dict[str, int]) -> list[tuple[int, int, int]]:
        """Queue, offset and number."""
        return [
            (int(queue), offset, self.topic.queues[int(queue)][offset])
            for queue, upto in end.items()
            for offset in range(start.get(queue, 0), upto)
        ]

    def _staged(self, table: str, batch: int, rows: list[tuple[int, int, int]], had: Offsets | None) -> Staged:
        known = Offsets() if had is None else had
        kept = [each for each in rows if each[1] >= known.get(MessageQueue("t", "b", each[0]), 0)]
        folder = self.state / "staged" / table
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        columns = {"number": [each[2] for each in kept], "_day": [date.fromisoformat(DAY)] * len(kept)}
        found = pa.table(columns, pa.schema([("number", pa.int64()), ("_day", pa.date32())]))
        if not kept:
            return Staged([], found.schema)
        path = folder / "0.parquet"
        pq.write_table(found if self.kind == "iceberg" else found.drop_columns("_day"), path)
        name = f"_day={DAY}/{self.settled.writer}-{batch:09}-00000.parquet"
        return Staged([StagedFile(path, name, f"_day={DAY}", len(kept), path.stat().st_size)], found.schema)


class Mishaps:
    """Runs with mishaps between them; after each, a run that goes on has all messages once."""

    # Of the state, to be lost or replaced by older ones.
    parts = ("", "", "checkpoint", "table.json", "checkpoint/reached.json", "catalog.db", "errors")

    def __init__(self, folder: Path, kind: str, seed: int) -> None:
        self.chance = Random(seed)
        self.kind = kind
        self.root = folder / "orders"
        self.folders = {
            "table": self.root,
            "errors": folder / "orders.errors",
            "state": folder / "orders.state",
        }
        self.copies = folder / "copies"
        self.topic = Topic(self.chance)
        self.kept: list[str] = []
        self._numbers = count()
        self.refused = self.resumed = 0

    def run(self, *, is_whole: bool = False) -> None:
        """Do some batches, and perhaps die; or all batches that there are."""
        run = Run(self.root, self.folders["state"], self.kind, self.topic)
        self.resumed += bool(run.to_json)
        try:
            run.batches(self.chance.randrange(1, 4), "never" if is_whole else self.chance.choice(_STEPS))
            while is_whole and not run.is_read():
                run.batches(1)
        except Killed:
            pass

    def copy(self) -> None:
        name = f"copy{next(self._numbers)}"
        for key, folder in self.folders.items():
            if folder.exists():
                shutil.copytree(folder, self.copies / name / key)
        self.kept.append(name)

    def restore(self, name: str, key: str, part: str = "") -> None:
        """Put a copy of one folder, or of a part of it, in its place."""
        folder, copy = self.folders[key] / part, self.copies / name / key / part
        if folder.is_dir():
            shutil.rmtree(folder)
        if copy.is_dir():
            shutil.copytree(copy, folder)
        elif copy.exists():
            shutil.copy(copy, folder)

    def damage(self) -> str:
        """Cut off a file of the state, as a power cut or a bad disk does; returns its path."""
        state = self.folders["state"]
        patterns = self.chance.choice(
            ["table.json", "checkpoint/metadata", "checkpoint/commits/*", "checkpoint/offsets/*"]
        )
        found = sorted(state.glob(patterns))
        if not found:
            return ""
        file = self.chance.choice([found[-1], self.chance.choice(found)])
        file.write_bytes(file.read_bytes()[: self.chance.choice([0, 0, 2, 9])])
        return str(file.relative_to(state))

    def mishap(self) -> str:
        """Let something happen, and return what it was."""
        what = self.chance.choice(
            [
                "lost",
                "damaged",
                "damaged",
                "older state",
                "older state",
                "older table",
                "older both",
                "older errors",
            ]
        )
        name, part = self.chance.choice(self.kept), self.chance.choice(self.parts)
        if what == "lost":
            lost = self.folders["state"] / part
            shutil.rmtree(lost) if lost.is_dir() else lost.unlink(missing_ok=True)
        elif what == "damaged":
            part = self.damage()
        elif what == "older state":
            self.restore(name, "state", part)
        elif what == "older table":
            self.restore(name, "table")
        elif what == "older errors":
            self.restore(name, "errors")
        else:
            self.restore(name, "table")
            self.restore(name, "errors")
        return f"{what} {part} {name}"

    def play(self, rounds: int) -> None:
        for _ in range(rounds):
            self.topic.send()
            self.run()
            if self.chance.random() < 0.5:
                self.copy()
            if not self.kept:
                self.copy()
            self.copy()
            self.topic.send()
            self.run()
            before = self.kept[-1]
            self.copy()
            latest = self.kept.pop()
            what = self.mishap()
            try:
                self.run(is_whole=True)
            except (ConfigError, BadStore) as refusal:
                self.refused += 1
                assert any(word in str(refusal) for word in ("restore", "move")), refusal
                for key in self.folders:
                    self.restore(latest, key)
                self.run(is_whole=True)
            assert self.has(ROWS) == self.topic.wanted(ROWS), (what, before)
            assert self.has(ERRORS) == self.topic.wanted(ERRORS), (what, before)

    def has(self, table: str) -> Counter[int]:
        path = self.folders["table" if table == ROWS else "errors"]
        state = self.folders["state"] / ("" if table == ROWS else "errors")
        return Counter(row["number"] for row in rows_of(self.kind, path, state))
