"""Room that is kept back for small files: taken when there is some, given up when it is needed, taken again."""

import os
from pathlib import Path

import pytest

from sparrowmq.broker.saved_state import MIN_RESERVED_BYTES, RESERVE_PERIOD_S, ReservedSpace
from sparrowmq.core import snapshot
from tests.broker.live import live_broker


def test_it_has_its_room_on_the_disk(tmp_path: Path):
    ReservedSpace(tmp_path / "config").reserve()
    found = (tmp_path / "config" / "spare").stat()
    assert found.st_size == MIN_RESERVED_BYTES and found.st_blocks * 512 >= MIN_RESERVED_BYTES


def test_it_grows_with_what_lies_beside_it(tmp_path: Path):
    room = ReservedSpace(tmp_path)
    room.reserve()
    snapshot.save(tmp_path / "consumerOffset.json", {"offsetTable": "x" * 3_000_000})
    room.reserve()
    assert (tmp_path / "spare").stat().st_size > MIN_RESERVED_BYTES + 6_000_000


def test_a_disk_that_is_nearly_full_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    disk = os.statvfs_result((4096, 4096, 1 << 20, 1000, 1000, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: disk)
    ReservedSpace(tmp_path).reserve()
    assert list(tmp_path.iterdir()) == []


async def test_a_broker_keeps_it_and_makes_it_anew(tmp_path: Path, clock):
    async with live_broker(tmp_path, clock=clock) as live:
        spare = live.broker.settings.config_path / "spare"
        assert spare.stat().st_size >= MIN_RESERVED_BYTES
        spare.unlink()
        await clock.advance(RESERVE_PERIOD_S)
        assert spare.stat().st_size >= MIN_RESERVED_BYTES
