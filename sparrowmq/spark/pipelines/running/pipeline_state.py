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
from sparrowmq.spark.pipelines.running.folders import check_same, local_path, read_sealed, write_sealed
from sparrowmq.spark.source.partition_ranges import BrokerTopic, Offsets

Pairs = dict[MessageQueue, MessageQueue]

_STATE_FILE: Final = "pipeline.json"
_LAST_BATCH_FILE: Final = "begun.json"
_CLUSTER_SETTINGS: Final = ("from", "to")  # settings that are name servers

_log = logging.getLogger(__name__)


class _LastBatch(msgspec.Struct):
    """The batch that was begun last, and then the ends (topic, broker, queue, offset) and incarnations of targets."""

    batch: int = -1
    floors: list[tuple[str, str, int, int]] = []
    incarnations: list[tuple[str, str, int]] = []

    @property
    def incarnation_by_topic(self) -> dict[BrokerTopic, int]:
        return {(topic, broker): incarnation for topic, broker, incarnation in self.incarnations}


class State:
    """The folder of one pipeline.

    `label` marks the copies of this pipeline, and `targets` has the target queue of each queue. `begin` are the first
    offsets by topic, broker and queue, if they depend on the moment of the first start. `incarnations` are those of the
    topics when the pipeline read them first; 0 if they were not known then.
    """

    def __init__(self, folder: str | Path, settings: Mapping[str, str]) -> None:
        """Raises: ConfigError, the folder belongs to another pipeline."""
        self.folder = local_path(folder)
        self._settings = dict(settings)
        saved = self._saved_settings()
        self._has_new_servers = saved is not None and saved["settled"] != self._settings
        self.begin: dict[str, Any] | None = (saved or {}).get("begin")
        self.label: str = saved["label"] if saved else uuid.uuid4().hex[:12]
        self.incarnations: dict[BrokerTopic, int] = {
            (topic, broker): incarnation for topic, broker, incarnation in (saved or {}).get("incarnations", [])
        }
        self.targets: Pairs = {
            MessageQueue(*source): MessageQueue(*target) for source, target in (saved or {}).get("targets", [])
        }

    @property
    def checkpoint(self) -> str:
        return str(self.folder / "checkpoint")

    @property
    def is_begun(self) -> bool:
        return (self.folder / _STATE_FILE).exists()

    def part(self, name: str) -> Path:
        return self.folder / name

    def keep_targets(self, targets: Pairs) -> None:
        """Fix the targets of queues."""
        if targets == self.targets and self.is_begun and not self._has_new_servers:
            return
        is_new, self.targets = not self.is_begun, targets
        self._write()
        if is_new:  # from now on a state without this file has lost it
            snapshot.save(self.folder / _LAST_BATCH_FILE, _LastBatch())

    def keep_begin(self, begin: dict[str, Any]) -> None:
        """Fix the first offsets, before a batch is planned."""
        self.begin = begin
        self._write()

    def may_plan_again(self, batch: int) -> bool:
        """Whether a batch may have other messages than before: the noted ends of the targets are no later ones."""
        last = self._last_batch()
        return last is None or last.batch <= batch

    def recreated(self, incarnations: Mapping[BrokerTopic, int]) -> dict[BrokerTopic, int]:
        """Return those of these incarnations that are not the first ones that the pipeline has read."""
        if new_topics := incarnations.keys() - self.incarnations.keys():
            self.incarnations |= {part: max(incarnations[part], 0) for part in new_topics}
            self._write()
        return {
            part: incarnation for part, incarnation in incarnations.items() if incarnation != self.incarnations[part]
        }

    def _write(self) -> None:
        """Raises: ConfigError, another first start has written the file since this one has looked."""
        if self.is_begun and self._read()["label"] != self.label:
            raise ConfigError(
                f"another run has begun the pipeline of {self.folder} at the same time; start this one again when the "
                "other one has ended"
            )
        rows = [[_queue_row(source), _queue_row(target)] for source, target in sorted(self.targets.items())]
        incarnations = [[*part, incarnation] for part, incarnation in sorted(self.incarnations.items())]
        content = {"settled": self._settings, "label": self.label, "targets": rows, "incarnations": incarnations}
        if self.begin is not None:
            content["begin"] = self.begin
        write_sealed(self.folder / _STATE_FILE, content, indent=1)
        self._has_new_servers = False

    def floors(self, batch: int, ends: Callable[[Collection[MessageQueue]], Offsets]) -> Offsets:
        """Return the end of each target when a batch was begun the first time, or an earlier place.

        If that is not known, the places are 0: to look further back is never wrong. `ends` asks brokers; if a broker is
        away, the floor is that of an earlier batch, or 0.
        """
        stored = self._last_batch()
        is_known = stored is not None and batch - 1 <= stored.batch <= batch
        last = stored or _LastBatch()
        floors = {MessageQueue(topic, broker, queue): end for topic, broker, queue, end in last.floors}
        new_targets = {queue for queue in self.targets.values() if last.batch != batch or queue not in floors}
        if new_targets:
            current_ends = ends(new_targets)
            floors = dict.fromkeys(new_targets, 0) | floors | current_ends
            if not is_known:
                _log.warning(
                    "%s is damaged, gone, or does not match the checkpoint; searches each target queue from its end to "
                    "its begin for the last copies",
                    self.folder / _LAST_BATCH_FILE,
                )
                floors |= dict.fromkeys(new_targets, 0)
            rows = [(queue.topic, queue.broker_name, queue.queue_id, end) for queue, end in sorted(floors.items())]
            incarnation_by_topic = [
                (*part, incarnation)
                for part, incarnation in sorted((last.incarnation_by_topic | current_ends.incarnations).items())
            ]
            snapshot.save(self.folder / _LAST_BATCH_FILE, _LastBatch(batch, rows, incarnation_by_topic))
        return Offsets(floors)

    def recreated_targets(self, ends: Offsets) -> list[BrokerTopic]:
        """Return the targets that are not those of the batch that was begun last. `ends`: as brokers say them now."""
        last = self._last_batch()
        old_incarnations = last.incarnation_by_topic if last is not None else {}
        return sorted(
            part
            for part, incarnation in ends.incarnations.items()
            if old_incarnations.get(part, incarnation) != incarnation
        )

    def _last_batch(self) -> _LastBatch | None:
        """Return what was noted last; None if that is damaged or gone, also if an older copy of it is there."""
        problems: list[str] = []
        batch = snapshot.load(self.folder / _LAST_BATCH_FILE, _LastBatch, report=problems.append)
        return None if problems else batch

    def _saved_settings(self) -> dict[str, Any] | None:
        has_more = (self.folder / _LAST_BATCH_FILE).exists() or is_planned(Path(self.checkpoint))
        if not self.is_begun and not has_more:
            return None
        saved = self._read()
        owner = f"the pipeline of {self.folder}"
        old_settings = {**saved["settled"]}
        for name in self._settings.keys() & old_settings.keys() & set(_CLUSTER_SETTINGS):
            old_settings[name] = _check_same_cluster(owner, old_settings[name], self._settings[name])
        check_same(owner, old_settings, self._settings)
        return saved

    def _read(self) -> dict[str, Any]:
        path = self.folder / _STATE_FILE
        try:
            content: dict[str, Any] = read_sealed(path)
            _ = content["settled"], content["label"]
        except (ValueError, KeyError, TypeError, FileNotFoundError):
            raise BadStore(
                f"{path} is damaged or gone, and it has the mark by which the pipeline knows its copies; restore it "
                "from a backup. Without it, a pipeline in another folder copies all messages again"
            ) from None
        return content


def _check_same_cluster(owner: str, before: str, now: str) -> str:
    """Return the name servers of now, of which one must have stayed: offsets of other clusters mean nothing here."""
    old, new = addresses(before), addresses(now)
    if before != now and not set(old) & set(new):
        raise ConfigError(
            f"{owner} was begun with the name servers {before}, not {now}. If the cluster has moved to them, name an "
            f"old one beside them once, as {';'.join((*new, old[0]))}; for another cluster name another folder"
        )
    return now


def _queue_row(queue: MessageQueue) -> list[str | int]:
    return [queue.topic, queue.broker_name, queue.queue_id]
