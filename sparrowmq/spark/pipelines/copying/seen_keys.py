"""Drops repeats from the batches of a stream: a message with the key of an earlier one, stored within a window of it.

    rows of a batch  ->  key, store time, place  ->  the driver  ->  places of repeats  ->  the tasks that copy

The driver looks the keys of a batch up in `known_keys.py`. So a batch costs what its own messages cost, however many
keys are known. Of the messages of a batch the first in the order of their store times passes.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import functions as f

from sparrowmq.errors import BadStore, ConfigError, NetworkError, NoRoute
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.pipelines.copying.known_keys import Key, KnownKeys, Passed, is_earlier
from sparrowmq.spark.pipelines.running.checkpoint_files import last_done, redo
from sparrowmq.spark.pipelines.running.own_session import is_of_rows, is_steady, reason, unlogged
from sparrowmq.spark.pipelines.running.report import Say
from sparrowmq.spark.pipelines.running.span import ends_before
from sparrowmq.spark.source.spark41_stream import planned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Dropped = Mapping[MessageQueue, frozenset[int]]

_KEY_BYTES: Final = 16
_ORDER: Final = ("at", "topic", "brokerName", "queueId", "queueOffset")
# By so much the clocks of brokers may differ.
_SKEW_MS: Final = 600_000
_LOOK_S: Final = 60.0
_OF_EARLIER_RELEASES: Final = re.compile(r"keys-([0-9]{9})(-merged)?")


class Place(NamedTuple):
    """A message of a batch."""

    key: Key | None
    at_ms: int
    queue: MessageQueue
    offset: int


class Repeats:
    """Finds repeats.

    Args:
        known: where the keys are kept. folder: theirs.
        by: an SQL expression over the source's columns: what two repeats have the same. Null is no repeat of null.
    """

    def __init__(self, folder: Path, by: str, window_ms: int) -> None:
        self._folder = folder
        self._by = by
        self.known = KnownKeys(folder, window_ms)
        self._looked_s = 0.0
        # A body that is looked at must be decompressed, and is then sent so.
        self.options = {"decompress": "true"} if re.search(r"\bbody\b", by) else {}

    def check(self, rows: DataFrame) -> None:
        """Raises: ConfigError, `by` is no expression over these columns, or a message has another key each time."""
        try:
            with unlogged():
                keys = rows.select(f.expr(self._by).cast("string"))
        except AnalysisException as error:
            raise ConfigError(
                f"by={self._by!r} cannot be understood: {reason(error)}; write msgId, keys or an SQL expression"
            ) from None
        if not (is_steady(keys) and is_of_rows(keys, rows)):
            raise ConfigError(
                f"by={self._by!r} is no property of a message: the result must come from the columns of its row, and "
                "be the same each time; write msgId, keys or an SQL expression over them"
            )

    def may_plan_again(self, batch: int) -> bool:
        """Whether it was never decided which messages of a batch pass: of others, other ones could pass as well."""
        return self.known.last_number < batch

    def regain(self, checkpoint: Path, say: Say) -> None:
        """Let a batch be done again that is done, but whose keys a fault of the disk has taken.

        The keys of the batches before it were added, so the same messages pass again, and their copies are there.

        Raises: BadStore, the keys of more batches are gone.
        """
        done, last = last_done(checkpoint), self.known.last_number
        if last >= done or (last < 0 and _has_earlier(self._folder)):
            return
        if last != done - 1 and (last >= 0 or not self.known.has_any):
            raise BadStore(
                f"{self._folder} lacks the keys of batches up to {done}, so repeats of them would pass; restore the "
                "folder of the state from a backup, or see `A damaged checkpoint` in docs/use/pipelines.md"
            )
        redo(checkpoint, done)
        say(f"the keys of batch {done} in {self._folder} were lost; the batch is done again, which changes nothing")

    def as_sent(self, rows: DataFrame) -> DataFrame:
        """The rows of a batch with the flags that copies of them get."""
        return rows.withColumn("sysFlag", f.lit(0)) if self.options else rows

    def find(self, rows: DataFrame, batch: int) -> tuple[int, Dropped]:
        """Return how many rows a batch has, and which of them are repeats of each other or of earlier messages."""
        take_over(self._folder, self.known, batch)
        window_ms = self.known.begin(batch)
        digest = f.sha2(f.expr(self._by).cast("string").cast("binary"), 256)
        key = f.unhex(f.substring(digest, 1, 2 * _KEY_BYTES)).alias("key")
        at = f.unix_millis("storeTimestamp").alias("at")
        places = list(placed(rows.select(key, at, *_ORDER[1:]).toArrow()))
        asked = [(place.key, place.at_ms) for place in places if place.key is not None]
        dropped, passed = decide(places, self.known.times(asked, window_ms), window_ms)
        self.known.note(batch, window_ms, passed)
        return len(places), dropped

    def forget(self, given: Mapping[str, str], checkpoint: str, batch: int) -> None:
        """Delete keys that no message needs, unless a broker is away.

        Args:
            given: options of the source. batch: is begun; those before it are done.
        """
        if time.monotonic() - self._looked_s < _LOOK_S or batch == 0:
            return
        self._looked_s = time.monotonic()
        read = planned(checkpoint, batch - 1)

        def is_read(until_ms: int) -> bool:
            try:
                ends = ends_before(given, until_ms)
            except (NetworkError, NoRoute):
                return False
            return all(offset <= read.get(queue, -1) for queue, offset in ends.items())

        self.known.forget(time.time_ns() // 1_000_000 - _SKEW_MS, is_read)


def placed(rows: pa.Table) -> Iterator[Place]:
    """The messages of a batch in the order in which they pass."""
    for batch in rows.sort_by([(name, "ascending") for name in _ORDER]).to_batches():
        columns: list[list[Any]] = [batch.column(name).to_pylist() for name in ("key", *_ORDER)]
        for key, at, topic, broker, queue_id, offset in zip(*columns, strict=True):
            yield Place(key, at, MessageQueue(topic, broker, queue_id), offset)


def decide(places: Iterable[Place], times: Mapping[Key, Iterable[int]], window_ms: int) -> tuple[Dropped, list[Passed]]:
    """Return the repeats among messages, and the keys of the others.

    Args:
        places: in order.
        times: when earlier messages with these keys were stored that have passed.
    """
    dropped: dict[MessageQueue, set[int]] = {}
    passed: list[Passed] = []
    newest: dict[Key, int] = {}
    for key, at_ms, queue, offset in places:
        if key is None:
            continue
        is_repeat = key in newest and at_ms - newest[key] < window_ms
        if is_repeat or any(abs(at_ms - time_ms) < window_ms for time_ms in times.get(key, ())):
            dropped.setdefault(queue, set()).add(offset)
        else:
            newest[key] = at_ms
            passed.append((key, at_ms))
    return {queue: frozenset(offsets) for queue, offsets in dropped.items()}, passed


def take_over(folder: Path, known: KnownKeys, batch: int) -> None:
    """Take the keys that an earlier release has left as Parquet files: those of the batches before this one."""
    names = ((path, _OF_EARLIER_RELEASES.fullmatch(path.name)) for path in sorted(folder.glob("keys-*")))
    found = [(path, int(match[1])) for path, match in names if match is not None]
    for path, number in found:
        if number < batch and (path / "_SUCCESS").exists():
            for file in sorted(path.glob("*.parquet")):
                known.add_earlier(list(_of_earlier_release(file)))
    for path, _number in found:
        shutil.rmtree(path)


def _has_earlier(folder: Path) -> bool:
    """Whether keys of an earlier release are there, which noted no batch."""
    return any(_OF_EARLIER_RELEASES.fullmatch(path.name) or is_earlier(path) for path in folder.glob("keys-*"))


def _of_earlier_release(file: Path) -> Iterator[Passed]:
    for batch in pq.ParquetFile(file).iter_batches(columns=["_key", "_seen_at_s"]):
        columns = (batch.column(name).to_pylist() for name in ("_key", "_seen_at_s"))
        for key, seen_at_s in zip(*columns, strict=True):
            yield key_of(key), int(seen_at_s * 1000)


def key_of(text: str) -> Key:
    """The key of a text, as Spark computes it for `Repeats.find`."""
    return hashlib.sha256(text.encode()).digest()[:_KEY_BYTES]
