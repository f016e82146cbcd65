"""Lakes without Spark's engine: real brokers, sockets and files; the workers are this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from sparrowmq.client import blocking_client as sync
from sparrowmq.spark.lakehouse.batch_parts import BatchPart, PartResult, run_parts
from sparrowmq.spark.lakehouse.lake_loop import LakeLoop
from sparrowmq.spark.lakehouse.lake_runner import source_options
from sparrowmq.spark.lakehouse.lake_settings import LakeSettings, settings_of
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.worker import connect


def declared(schema: str) -> dict[str, str]:
    """The columns of a schema, read without Java."""
    return dict(each.split() for each in schema.split(","))


class PlainWorkers:
    """Does parts here. `before`: called with each, so that a test can make it fail."""

    tasks = 2

    def __init__(self, before: Callable[[BatchPart], object] = lambda _: None) -> None:
        self.before = before
        self.done: list[BatchPart] = []

    def __call__(self, parts: Sequence[BatchPart]) -> list[PartResult]:
        for part in parts:
            self.before(part)
        self.done += parts
        return list(run_parts(parts))


def settings(namesrv: str, folder: Path, tables: Mapping[str, Any], **given: Any) -> LakeSettings:
    """Settings of a lake in a folder, which looks for new topics each time."""
    defaults = {"to": f"{folder}/{{topic}}", "compact_every": "0s"}
    rest = {"new_topics_every": "0s", **given}
    return settings_of({"name_server": namesrv, "defaults": defaults, "tables": tables, **rest}, "lake.toml")


@contextmanager
def running(found: LakeSettings, workers: PlainWorkers | None = None, **given: Any) -> Iterator[LakeLoop]:
    """A lake's rounds."""
    with connect(source_options(found)) as network:
        rounds = LakeLoop(found, network, workers or PlainWorkers(), declared, **given)
        try:
            yield rounds
        finally:
            rounds.close()


def send(namesrv: str, bodies: Mapping[str, Sequence[bytes]]) -> None:
    """Send messages by topic; returns when the name server knows the topics."""
    with sync.connect(namesrv) as mq:
        for topic, some in bodies.items():
            for body in some:
                mq.send(topic, body)
    deadline = time.monotonic() + 60
    with connect(parse(SourceOptions, {"nameServer": namesrv, "topic": ",".join(bodies)})) as network:
        while bodies.keys() - set(network.topics()):
            assert time.monotonic() < deadline, bodies.keys()
            time.sleep(0.05)


def rows_of(table: Path) -> list[dict[str, Any]]:
    """The rows of a Parquet table, in the order of their places."""
    rows = [row for file in table.glob("*/*.parquet") for row in pq.ParquetFile(file).read().to_pylist()]
    return sorted(rows, key=place)


def place(row: Mapping[str, Any]) -> tuple[int, int]:
    return row["_mq"]["queueId"], row["_mq"]["queueOffset"]
