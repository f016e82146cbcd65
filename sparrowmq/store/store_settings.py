"""The settings of a store. Defaults are Java's, except where a comment says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from sparrowmq.errors import ConfigError
from sparrowmq.kernel.record_layout import MIN_SIZE_BYTES
from sparrowmq.protocol import hosts
from sparrowmq.store.layout import BLANK_SIZE, SECTOR, Layout

# With ASYNC, a power cut loses at most 0.5 s of messages. The rest of this time is for the sync itself.
MAX_FLUSH_INTERVAL_MS: Final = 300
_SECOND: Final = 1000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE


class Flush(Enum):
    """When a message counts as stored: on disk, or in memory that will be written to disk."""

    SYNC = "SYNC_FLUSH"
    ASYNC = "ASYNC_FLUSH"


class CorruptPolicy(Enum):
    """The reaction to a damaged record when a store is opened."""

    FAIL = "fail"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The settings of a store. `BrokerSettings.store` makes them of a broker's."""

    path: Path | str
    commit_log_path: Path | str | None = None
    """Folder of the log, if not in `path`."""
    commit_log_file_size: int = 1 << 30
    consume_queue_file_entries: int = 300_000
    index: bool = True
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    # Unlike Java: an answer means "on disk", unless the setting says otherwise.
    flush: Flush = Flush.SYNC
    flush_interval_ms: int = 500
    """Interval at which ASYNC writes to disk; at most 300 ms."""
    safety_timeout_ms: int = 5000
    """Time that an answer waits until its message is safe (Java: syncFlushTimeout)."""
    store_host: bytes = hosts.pack("127.0.0.1:10911")
    """Address of this broker in records and offset ids, as `hosts.pack` makes it."""
    # Unlike Java: on by default, because its other CRC covers only bodies.
    property_crc: bool = True
    """Whether records carry the CRC over all of their bytes."""
    corrupt_policy: CorruptPolicy = CorruptPolicy.FAIL
    awaits_copy: bool = False
    """Whether other brokers have a copy of the log, which may repair it: damage becomes no gap in a queue before."""
    checks_all: bool = False
    """Whether a start checks the whole log, as a repair does."""
    open_queue_files: int = 4096
    """Most files of queues open at once."""
    checkpoint_interval_ms: int = 5000
    """Interval at which queues and index are written to disk. After a crash the next start repeats the rest."""
    retention_hours: int = 72
    delete_when: str = "04"
    disk_clean_ratio: float = 0.75
    disk_force_ratio: float = 0.85
    disk_full_ratio: float = 0.90
    scrub_mib_s: int = 1
    """MiB of the log that are checked for damage per second; 0 checks nothing."""
    set_aside_days: int = 30
    """Days for which bytes that left the log are kept in set-aside; 0 keeps them."""
    set_aside_limit: int = 10 << 30
    """Bytes in set-aside from which its oldest pieces are deleted earlier."""
    delay_levels_ms: tuple[int, ...] = (
        *(seconds * _SECOND for seconds in (1, 5, 10, 30)),
        *(minutes * _MINUTE for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
        *(hours * _HOUR for hours in (1, 2)),
    )
    """The delays of messageDelayLevel, for rebuilding the queues of SCHEDULE_TOPIC_XXXX."""

    def __post_init__(self) -> None:
        _check(self.commit_log_file_size >= MIN_SIZE_BYTES + BLANK_SIZE, "mappedFileSizeCommitLog: no message fits")
        _check(self.commit_log_file_size % SECTOR == 0, f"mappedFileSizeCommitLog must be a multiple of {SECTOR}")
        _check(self.consume_queue_file_entries > 0, "a queue file must hold at least one entry")
        _check(self.index_slots > 0 and self.index_entries > 1, "an index file must hold a slot and two entries")
        _check(self.flush_interval_ms > 0, "flushIntervalCommitLog must be positive")
        _check(self.safety_timeout_ms > 0, "syncFlushTimeout must be positive")
        _check(len(self.store_host) in (hosts.IPV4_SIZE, hosts.IPV6_SIZE), "store_host takes 8 bytes or 20")

    @property
    def layout(self) -> Layout:
        return Layout.of(self.path, self.commit_log_path)


def _check(holds: bool, sentence: str) -> None:
    if not holds:
        raise ConfigError(sentence)
