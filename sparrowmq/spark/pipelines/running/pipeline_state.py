"""The state of a pipeline between its runs, in a folder: the settings of the first run, and Spark's checkpoint."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from sparrowmq.core import snapshot
from sparrowmq.errors import BadStore, ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.options import addresses
from sparrowmq.spark.pipelines.running.checkpoint_files import is_planned
from sparrowmq.spark.pipelines.running.folders import (
    demand_same,
    keep_sealed,
    local_path,
    read_sealed,
)
from sparrowmq.spark.source.partition_ranges import Offsets, Part

Pairs = dict[MessageQueue, MessageQueue]

_FILE: Final = "pipeline.json"
_BEGUN_FILE: Final = "begun.json"
_CLUSTERS: Final = ("from", "to")  # settings that are name servers

_log = logging.getLogger(__name__)


class _Begun(msgspec.Struct):
    """The batch that was begun last, and where targets ended then: topic, broker, queue and offset.

    Attributes:
        incarnations: of the targets: topic, broker and number.
    """

    batch: int = -1
    floors: list[tuple[str, str, int, int]] = []
    incarnations: list[tuple[str, str, int]] = []

    @property
    def named(self) -> dict[Part, int]:
        return {(topic, broker): known for topic, broker, known in self.incarnations}


class State:
    """The folder of one pipeline.

    Attributes:
        folder: its absolute path.
        label: marks the copies of this pipeline.
        targets: the target queue of each queue.
        begin: the first offsets by topic, broker and queue, if they depend on the moment of the first start.
        incarnations: of the topics, as they were when the pipeline read them first; 0 if they were not known then.
    """

    def __init__(self, folder: str | Path, settled: Mapping[str, str]) -> None:
        """Raises: ConfigError, the folder belongs to another pipeline."""
        self.folder = local_path(folder)
        self._settled = dict(settled)
        kept = self._kept()
        self._has_moved = kept is not None and kept["settled"] != self._settled
        self.begin: dict[str, Any] | None = (kept or {}).get("begin")
        self.label: str = kept["label"] if kept else uuid.uuid4().hex[:12]
        self.incarnations: dict[Part, int] = {
            (topic, broker): known for topic, broker, known in (kept or {}).get("incarnations", [])
        }
        self.targets: Pairs = {
            MessageQueue(*source): MessageQueue(*target) for source, target in (kept or {}).get("targets", [])
        }

    @property
    def checkpoint(self) -> str:
        return str(self.folder / "checkpoint")

    @property
    def is_begun(self) -> bool:
        return (self.folder / _FILE).exists()

    def part(self, name: str) -> Path:
        return self.folder / name

    def keep(self, targets: Pairs) -> None:
        """Fix the targets of queues."""
        if targets == self.targets and self.is_begun and not self._has_moved:
            return
        is_new, self.targets = not self.is_begun, targets
        self._write()
        if is_new:  # from now on a state without this file has lost it
            snapshot.save(self.folder / _BEGUN_FILE, _Begun())

    def keep_begin(self, begin: dict[str, Any]) -> None:
        """Fix the first offsets, before a batch is planned."""
        self.begin = begin
        self._write()

    def may_plan_again(self, batch: int) -> bool:
        """Whether a batch may have other messages than before: the noted ends of the targets are no later ones."""
        begun = self._begun()
        return begun is None or begun.batch <= batch

    def made_again(self, incarnations: Mapping[Part, int]) -> dict[Part, int]:
        """Return those of these incarnations that are not the first ones that the pipeline has read."""
        if unknown := incarnations.keys() - self.incarnations.keys():
            self.incarnations |= {part: max(incarnations[part], 0) for part in unknown}
            self._write()
        return {part: each for part, each in incarnations.items() if each != self.incarnations[part]}

    def _write(self) -> None:
        """Raises: ConfigError, another first start has written the file since this one has looked."""
        if self.is_begun and self._read()["label"] != self.label:
            raise ConfigError(
                f"another run has begun the pipeline of {self.folder} at the same time; start this one again when the "
                "other one has ended"
            )
        rows = [[_place(source), _place(target)] for source, target in sorted(self.targets.items())]
        incarnations = [[*part, known] for part, known in sorted(self.incarnations.items())]
        kept = {"settled": self._settled, "label": self.label, "targets": rows, "incarnations": incarnations}
        if self.begin is not None:
            kept["begin"] = self.begin
        keep_sealed(self.folder / _FILE, kept, indent=1)
        self._has_moved = False

    def floors(self, batch: int, ends: Callable[[Collection[MessageQueue]], Offsets]) -> Offsets:
        """Return the end of each target when a batch was begun the first time, or an earlier place.

        If that is not known, the places are 0: to look further back is never wrong.

        Args:
            ends: asks brokers. A broker that is away does not answer; then the floor is that of an earlier batch, or 0.
        """
        noted = self._begun()
        is_known = noted is not None and batch - 1 <= noted.batch <= batch
        begun = noted or _Begun()
        floors = {MessageQueue(topic, broker, queue): end for topic, broker, queue, end in begun.floors}
        new = {queue for queue in self.targets.values() if begun.batch != batch or queue not in floors}
        if new:
            found = ends(new)
            floors = dict.fromkeys(new, 0) | floors | found
            if not is_known:
                _log.warning(
                    "%s is damaged, gone, or of another time than the checkpoint; looks for the last copies from the "
                    "end of each target queue to its begin",
                    self.folder / _BEGUN_FILE,
                )
                floors |= dict.fromkeys(new, 0)
            rows = [(each.topic, each.broker_name, each.queue_id, end) for each, end in sorted(floors.items())]
            named = [(*part, known) for part, known in sorted((begun.named | found.incarnations).items())]
            snapshot.save(self.folder / _BEGUN_FILE, _Begun(batch, rows, named))
        return Offsets(floors)

    def targets_made_again(self, ends: Offsets) -> list[Part]:
        """Return the targets that are not those of the batch that was begun last. `ends`: as brokers say them now."""
        begun = self._begun()
        known = begun.named if begun is not None else {}
        return sorted(part for part, now in ends.incarnations.items() if known.get(part, now) != now)

    def _begun(self) -> _Begun | None:
        """Return what was noted last; None if that is damaged or gone, also if an older copy of it is there."""
        older: list[str] = []
        found = snapshot.load(self.folder / _BEGUN_FILE, _Begun, report=older.append)
        return None if older else found

    def _kept(self) -> dict[str, Any] | None:
        has_more = (self.folder / _BEGUN_FILE).exists() or is_planned(Path(self.checkpoint))
        if not self.is_begun and not has_more:
            return None
        kept = self._read()
        what = f"the pipeline of {self.folder}"
        before = {**kept["settled"]}
        for name in self._settled.keys() & before.keys() & set(_CLUSTERS):
            before[name] = _demand_same_cluster(what, before[name], self._settled[name])
        demand_same(what, before, self._settled)
        return kept

    def _read(self) -> dict[str, Any]:
        """Raises: BadStore, the file is damaged or gone."""
        path = self.folder / _FILE
        try:
            kept: dict[str, Any] = read_sealed(path)
            _ = kept["settled"], kept["label"]
        except (ValueError, KeyError, TypeError, FileNotFoundError):
            raise BadStore(
                f"{path} is damaged or gone, and it has the mark by which the pipeline knows its copies; restore it "
                "from a backup. Without it, a pipeline in another folder copies all messages again"
            ) from None
        return kept


def _demand_same_cluster(what: str, before: str, now: str) -> str:
    """Return the name servers of now, which may be others of the same cluster. Raises: ConfigError, none has stayed.

    A copy in another cluster would go on behind offsets that are not its own, so somebody must say that it is the same.
    """
    old, new = addresses(before), addresses(now)
    if before != now and not set(old) & set(new):
        raise ConfigError(
            f"{what} was begun with the name servers {before}, not {now}. If the cluster has moved to them, name an "
            f"old one beside them once, as {';'.join((*new, old[0]))}; for another cluster name another folder"
        )
    return now


def _place(queue: MessageQueue) -> list[str | int]:
    return [queue.topic, queue.broker_name, queue.queue_id]
