"""Stores with log files of 4 KiB, and the rows that the source makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.store.stores import Stores

Row = tuple[str, int, int, bytes]


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    stores = Stores(tmp_path)
    yield stores
    stores.check()


@pytest.fixture
def read() -> Callable[..., list[Row]]:
    """`read(path, **options)`: topic, queue, offset and body of each row; of the topic Orders if not told else."""
    pytest.importorskip("pyspark")
    from sparrowmq.spark.source_and_sink import RocketMQSource

    def read(path: Path | str, **given: Any) -> list[Row]:
        chosen = {} if given.keys() & {"topic", "subscribePattern"} else {"topic": "Orders"}
        source = RocketMQSource({"path": str(path), **chosen, **given})
        reader = source.reader(source.schema())
        batches = [batch for task in reader.partitions() for batch in reader.read(task)]
        return [
            (row["topic"], row["queueId"], row["queueOffset"], row["body"])
            for batch in batches
            for row in batch.to_pylist()
        ]

    return read
