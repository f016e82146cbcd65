"""A broker whose disk is really full, and one whose sync really fails, keep what they promised."""

import random
from pathlib import Path

import pytest

from tests.crash.full_disk import FailedSync, FullDisk
from tests.crash.loop_disk import LoopDisk
from tests.crash.not_here import skipped_without
from tests.crash.small_disk import SmallDisk

SEED = random.randrange(1 << 32)


@pytest.fixture
def small(tmp_path: Path):
    with skipped_without("a loop device"):
        disk = SmallDisk(tmp_path, 96 << 20)
    with disk:
        yield disk


@pytest.mark.timeout(300)
@pytest.mark.parametrize("cycles", [1, pytest.param(8, marks=pytest.mark.nightly)])
async def test_a_broker_lives_through_a_full_disk(tmp_path: Path, small: SmallDisk, cycles: int):
    rig = FullDisk(tmp_path, "SYNC_FLUSH", SEED, small)
    for number in range(cycles):
        await rig.cycle(kills=number % 2 == 1)
    await rig.finish()
    assert rig.tally.violations == [], f"seed {SEED}"
    assert rig.refused > 0 and rig.resumed_s


@pytest.mark.timeout(300)
async def test_after_a_failed_sync_nothing_is_acknowledged_and_all_is_served(
    tmp_path: Path, small: SmallDisk
):
    with skipped_without("a loop device"):
        disk = LoopDisk(tmp_path, "ext4", small.folder / "image")
    with disk:
        rig = FailedSync(tmp_path, SEED, small, disk)
        await rig.cycle()
        await rig.finish()
    assert rig.tally.violations == [], f"seed {SEED}"
    assert rig.ledger.acked > 100
