"""A lake that is killed again and again while its topics get messages.

The body of a message is its number as JSON; one of a hundred is no JSON, and becomes a reject. Each number must be in
one row, or in one reject, of its topic's table.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from sparrowmq.client import blocking_client as sync
from sparrowmq.errors import SendFailed
from sparrowmq.testing.background import BackgroundCluster
from tests.interop.apache import free_ports
from tests.spark.lakehouse.lake_process import LakeProcess
from tests.spark.pipelines.lake.tables import rows_of

FORMATS: Final = ("parquet", "delta", "iceberg")
END_LIMIT_S: Final = 900.0
_TICK_S: Final = 0.05
_LOOK_S: Final = 2.0
_SETTINGS: Final = """
name_server = "{namesrv}"
metrics = "127.0.0.1:{port}"
master = "local[2]"
every = "2s"

[defaults]
to = "{folder}/{{topic}}"
mode = "json"
"""
_SECTION: Final = '\n[tables."{format}-.*"]\nformat = "{format}"\n'


class LakeFire:
    """One lake, its cluster, and the messages that were sent.

    Attributes:
        sent: the acknowledged messages.
        rows: the rows and rejects in the tables, at the end.
        lives: the figures of each life: rows, batches, failures, CPU of a batch, memory at its end, and the greatest
            age of a message that a table lacked.
    """

    def __init__(self, folder: Path, topics: int, rate: float, seed: int) -> None:
        self._folder = folder
        self._topics = [f"{FORMATS[at % len(FORMATS)]}-{at}" for at in range(topics)]
        self._rate = rate
        self._chance = random.Random(seed)
        self._numbers: dict[str, list[int]] = {topic: [] for topic in self._topics}
        self._maybe: dict[str, list[int]] = {topic: [] for topic in self._topics}
        self._asked = 0
        self._ended = Event()
        self.sent = 0
        self.rows = 0
        self.lives: list[dict[str, float]] = []

    def play(self, lives: int, life_s: float) -> None:
        """Kill so often, and let the last lake finish its work. Raises: AssertionError, a lake ended by itself."""
        with BackgroundCluster(self._folder / "store") as cluster:
            path = self._write_settings(cluster.namesrv)
            sender = Thread(target=self._send, args=(cluster.namesrv,))
            sender.start()
            try:
                for number in range(lives):
                    self._live(path, life_s * self._chance.uniform(2 / 3, 4 / 3))
                    print(f"life {number + 1}: {self.lives[-1]}", file=sys.stderr, flush=True)
            finally:
                self._ended.set()
                sender.join()
            self._finish(path)

    def wrong(self) -> Iterator[str]:
        """Each message that is not in one row, in a sentence."""
        for topic in self._topics:
            found = Counter(self._numbers_in(topic))
            self.rows += found.total()
            for number in self._numbers[topic]:
                if found[number] != 1:
                    yield f"{'doubled' if found[number] else 'lost'}: message {number} of {topic}"
            for number in self._maybe[topic]:
                if found[number] > 1:
                    yield f"doubled: message {number} of {topic}"
            if strange := found.keys() - {*self._numbers[topic], *self._maybe[topic]}:
                yield f"phantom: {sorted(strange)[:5]} in {topic}"

    @property
    def maybe(self) -> int:
        """The messages whose send failed, which may be there."""
        return sum(map(len, self._maybe.values()))

    def _write_settings(self, namesrv: str) -> Path:
        [port] = free_ports(1)
        text = _SETTINGS.format(namesrv=namesrv, port=port, folder=self._folder / "tables")
        path = self._folder / "lake.toml"
        path.write_text(text + "".join(_SECTION.format(format=each) for each in FORMATS))
        return path

    def _send(self, namesrv: str) -> None:
        with sync.connect(namesrv) as mq:
            begun = time.monotonic()
            while not self._ended.wait(_TICK_S):
                due = range(self._asked, int((time.monotonic() - begun) * self._rate))
                self._asked = due.stop
                for topic, number, answer in [self._send_one(mq, number) for number in due]:
                    try:
                        answer.result()
                    except SendFailed:
                        self._maybe[topic].append(number)
                    else:
                        self._numbers[topic].append(number)
                        self.sent += 1

    def _send_one(self, mq: sync.SyncClient, number: int) -> tuple[str, int, Any]:
        topic = self._chance.choice(self._topics)
        body = json.dumps({"number": number}) if number % 100 else f"no JSON {number}"
        return topic, number, mq.send_soon(topic, body.encode())

    def _live(self, path: Path, seconds: float) -> None:
        lake = LakeProcess(path, self._folder)
        try:
            self.lives.append(_watched(lake, seconds))
        finally:
            lake.kill()

    def _finish(self, path: Path) -> None:
        lake = LakeProcess(path, self._folder)
        try:
            lake.until(lambda: _is_done(lake, len(self._topics)), END_LIMIT_S)
            self.lives.append(_figures(lake, lake.tables()))
            lake.stop()
        finally:
            lake.kill()

    def _numbers_in(self, topic: str) -> Iterator[int]:
        format, table = topic.partition("-")[0], self._folder / "tables" / topic
        state = table.with_name(f"{topic}.state")
        for row in rows_of(format, table, state):
            yield row["number"]
        for row in rows_of(format, table.with_name(f"{topic}.errors"), state / "errors"):
            yield int(row["body"].rpartition(b" ")[2])


def _is_done(lake: LakeProcess, topics: int) -> bool:
    tables = lake.tables()
    return len(tables) == topics and all(table["state"] == "kept" for table in tables)


def _watched(lake: LakeProcess, seconds: float) -> dict[str, float]:
    """Its figures after so many seconds; `oldest_s` is the greatest of all that time."""
    tables, oldest_s = lake.tables(), 0.0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(_LOOK_S)
        tables = lake.tables()
        oldest_s = max([oldest_s, *(table["freshness_s"] for table in tables)])
    return _figures(lake, tables) | {"oldest_s": oldest_s}


def _figures(lake: LakeProcess, tables: list[dict[str, Any]]) -> dict[str, float]:
    family = lake.family()
    batches = sum(table["batches"] for table in tables)
    cpu_s = sum(sum(each.cpu_times()[:2]) for each in family)
    return {
        "rows": sum(table["rows"] + table["rejects"] for table in tables),
        "batches": batches,
        "failures": sum(table["failures"] for table in tables),
        "cpu_ms_of_a_batch": round(1000 * cpu_s / max(batches, 1), 1),
        "memory_mb": round(sum(each.memory_info().rss for each in family) / 1e6),
    }
