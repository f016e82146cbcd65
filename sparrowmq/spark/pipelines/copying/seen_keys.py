"""The keys that were seen: a message with the key of an earlier one is dropped.

    STATE/seen/keys-000000012          the keys that batch 12 let pass, and when
    STATE/seen/keys-000000049-merged   those of all batches up to 49 that are young enough

A batch that is repeated sees only what earlier batches left, and so lets the same messages pass again.
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException
from pyspark.sql import Window
from pyspark.sql import functions as f

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.running.own_session import reason, unlogged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEY: Final = "_key"
_SEEN_AT: Final = "_seen_at_s"
_MERGED_AT: Final = 50  # folders
_NAME: Final = re.compile(r"keys-(\d{9})(-merged)?")
_ORDER: Final = ("storeTimestamp", "brokerName", "queueId", "queueOffset")


class Repeats:
    """Drops repeats.

    Args:
        folder: where the keys are kept.
        by: an SQL expression over the source's columns: what two repeats have the same. Null is no repeat of null.
        window_s: for how long a key is kept.
    """

    def __init__(self, folder: Path, by: str, window_s: float) -> None:
        self._folder = folder
        self._by = by
        self._window_s = window_s
        self._rows: DataFrame | None = None
        self._kept: DataFrame | None = None
        # A body that is looked at must be decompressed, and is then sent so.
        self.options = {"decompress": "true"} if re.search(r"\bbody\b", by) else {}

    def check(self, rows: DataFrame) -> None:
        """Raises: ConfigError, `by` is no expression over these columns."""
        try:
            with unlogged():
                rows.select(f.expr(self._by).cast("string"))
        except AnalysisException as error:
            raise ConfigError(
                f"by={self._by!r} cannot be understood: {reason(error)}; write msgId, keys or an SQL expression"
            ) from None

    def without(self, rows: DataFrame, batch: int) -> DataFrame:
        """The rows of a batch that repeat neither each other nor what earlier batches had."""
        if self.options:
            rows = rows.withColumn("sysFlag", f.lit(0))
        self._rows = rows.withColumn(_KEY, f.expr(self._by).cast("string")).persist()
        place = f.row_number().over(Window.partitionBy(_KEY).orderBy(*_ORDER))
        first = self._rows.withColumn("_place", place).where(f"{_KEY} is null or _place = 1")
        seen = self._seen(batch, rows)
        kept = first if seen is None else first.join(seen, _KEY, "left_anti")
        self._kept = kept.persist()
        return self._kept

    def keep(self, batch: int) -> int:
        """Note the keys of a batch that is done; returns how many rows it had."""
        assert self._rows is not None and self._kept is not None, "`without` comes first"
        now_s = time.time()
        keys = self._kept.where(f"{_KEY} is not null").select(_KEY, f.lit(now_s).alias(_SEEN_AT))
        keys.coalesce(1).write.mode("overwrite").parquet(str(self._folder / f"keys-{batch:09}"))
        count = self._rows.count()
        if len(self._folders(batch)) >= _MERGED_AT:
            self._merge(batch, self._kept, now_s)
        self._kept.unpersist()
        self._rows.unpersist()
        return count

    def _seen(self, batch: int, rows: DataFrame) -> DataFrame | None:
        folders = self._folders(batch)
        if not folders:
            return None
        read = rows.sparkSession.read.schema(f"{_KEY} string, {_SEEN_AT} double").parquet(*map(str, folders))
        return read.where(f.col(_SEEN_AT) >= time.time() - self._window_s).select(_KEY).distinct()

    def _merge(self, batch: int, rows: DataFrame, now_s: float) -> None:
        """Put the keys of earlier batches into one folder. What a crash leaves of the old ones is only there twice."""
        old = self._folders(batch)
        spark = rows.sparkSession
        keys = spark.read.schema(f"{_KEY} string, {_SEEN_AT} double").parquet(*map(str, old))
        keys = keys.where(f.col(_SEEN_AT) >= now_s - self._window_s)
        new = self._folder / "merging"
        keys.coalesce(1).write.mode("overwrite").parquet(str(new))
        merged = self._folder / f"keys-{batch - 1:09}-merged"
        shutil.rmtree(merged, ignore_errors=True)
        new.rename(merged)
        for folder in old:
            if folder != merged:
                shutil.rmtree(folder)

    def _folders(self, batch: int) -> list[Path]:
        """Those of the batches before one; what was not written to its end is left out."""
        found = ((folder, _NAME.fullmatch(folder.name)) for folder in self._folder.glob("keys-*"))
        return sorted(
            folder
            for folder, match in found
            if match and int(match[1]) < batch and (folder / "_SUCCESS").exists()
        )
