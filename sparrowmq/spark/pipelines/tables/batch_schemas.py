"""The schemas of each batch, kept before a row of the batch is written: `schemas.json` in the state's folder.

    batch     the last batch for which the registry was asked
    known     schemas by id; an id never changes its schema
    missing   ids that had no usable schema in that batch, and why

Spark repeats a batch after a crash. The registry may then have a schema that it did not have before, and a message
could be in neither table: the rows are there already, and its error is not. So a batch that is repeated asks nothing.
The next batch asks again for what was missing. While the registry is away, a batch fails, and is tried again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from sparrowmq.errors import BadStore, InvalidSchema
from sparrowmq.spark.pipelines.running.folders import keep_sealed, read_sealed
from sparrowmq.spark.pipelines.tables.encoded_bodies import NO_ID, Source

MOST_NEW: Final = 1000  # ids for which one batch asks: any sender can invent more

Ask = Callable[[int], Source]


@dataclass
class _Kept:
    batch: int = -1
    known: dict[str, dict[str, Any]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


class BatchSchemas:
    """The schemas of the batches of one table.

    Args:
        ask: returns a schema by its id; raises InvalidSchema if there is none, and NetworkError if it cannot say.
        path: of the file; None keeps nothing.
    """

    def __init__(self, ask: Ask, path: Path | None) -> None:
        self._ask = ask
        self._path = path
        self._kept = _read(path) if path is not None and path.exists() else _Kept()

    def of(self, batch: int, ids: Iterable[int]) -> tuple[Mapping[int, Source], Mapping[int, str]]:
        """Return the schemas of a batch, and why some ids have none.

        Args:
            ids: those in the bodies, the most frequent ones first.
        Raises:
            NetworkError: the registry is away. ConfigError: it refuses.
        """
        kept, wanted = self._kept, list(ids)
        if batch > kept.batch or self._path is None:
            new = [each for each in wanted if str(each) not in kept.known or each == NO_ID]
            if new:
                self._look_up(batch, new[:MOST_NEW])
        known = {each: _source(kept.known[str(each)]) for each in wanted if str(each) in kept.known}
        return known, {int(each): why for each, why in kept.missing.items() if int(each) not in known}

    def _look_up(self, batch: int, new: Iterable[int]) -> None:
        kept = self._kept
        before = json.dumps(asdict(kept))
        found, missing = {}, {}
        for each in new:
            try:
                found[str(each)] = asdict(self._ask(each))
            except InvalidSchema as error:
                missing[str(each)] = str(error)
        kept.batch, kept.missing = batch, missing
        kept.known |= found
        if self._path is not None and json.dumps(asdict(kept)) != before:
            keep_sealed(self._path, asdict(kept))


def _read(path: Path) -> _Kept:
    """Raises: BadStore, the file is damaged."""
    try:
        return _Kept(**read_sealed(path))
    except (ValueError, TypeError):
        raise BadStore(
            f"{path}, the schemas of the last batch, is damaged; restore it from a backup, or remove it: then the "
            "registry is asked for them again"
        ) from None


def _source(kept: Mapping[str, Any]) -> Source:
    references = tuple((name, text) for name, text in kept["references"])
    return Source(kept["kind"], kept["text"], references, kept["message"])
