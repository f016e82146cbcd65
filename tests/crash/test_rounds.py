"""kill -9 of the broker, and power cuts, under load: no acknowledged message lost, none invented, order kept."""

import random
from pathlib import Path

import pytest

from tests.crash.loop_disk import LoopDisk, demand
from tests.crash.not_here import skipped_without
from tests.crash.rounds import CrashRig, Points, sentences


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("flush", "rounds"),
    [
        pytest.param("ASYNC_FLUSH", 6, marks=pytest.mark.slow),
        pytest.param("SYNC_FLUSH", 6, marks=pytest.mark.slow),
        pytest.param("ASYNC_FLUSH", 50, marks=pytest.mark.nightly),
        pytest.param("SYNC_FLUSH", 50, marks=pytest.mark.nightly),
    ],
)
async def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path, flush: str, rounds: int) -> None:
    seed = random.randrange(1 << 32)
    rig = CrashRig(tmp_path, flush, seed)
    await rig.play(rounds)
    print(f"seed {seed}:", *sentences(rig.tally, rig.ledger), sep="\n")
    assert rig.tally.violations == [], f"seed {seed}"
    assert rig.ledger.acked > 40 * rounds


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rounds", [3, pytest.param(60, marks=pytest.mark.nightly)])
@pytest.mark.slow
async def test_nothing_acknowledged_is_lost_by_a_death_between_two_effects_on_files(
    tmp_path: Path, rounds: int
) -> None:
    seed = random.randrange(1 << 32)
    points = Points(tmp_path, random.Random(seed))
    rig = CrashRig(tmp_path, "SYNC_FLUSH", seed, points=points)
    await rig.play(rounds)
    assert rig.tally.violations == [], f"seed {seed}"
    assert len((tmp_path / "points").read_text().splitlines()) >= 30


@pytest.fixture
def disk(request, tmp_path: Path):
    with skipped_without("a loop device"):
        demand(request.param)
        disk = LoopDisk(tmp_path, request.param)
    with disk:
        yield disk


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("disk", "flush", "rounds"),
    [
        pytest.param("ext4", "SYNC_FLUSH", 2, marks=pytest.mark.slow),
        pytest.param("ext4", "ASYNC_FLUSH", 2, marks=pytest.mark.slow),
        pytest.param("ext4", "SYNC_FLUSH", 30, marks=pytest.mark.nightly),
        pytest.param("xfs", "SYNC_FLUSH", 30, marks=pytest.mark.nightly),
        pytest.param("xfs", "ASYNC_FLUSH", 30, marks=pytest.mark.nightly),
    ],
    indirect=["disk"],
)
async def test_a_power_cut_takes_no_more_than_the_flush_mode_allows(tmp_path: Path, disk, flush, rounds) -> None:
    seed = random.randrange(1 << 32)
    rig = CrashRig(tmp_path, flush, seed, disk=disk)
    await rig.play(rounds)
    assert rig.tally.violations == [], f"seed {seed}"
    assert rig.ledger.acked + rig.tally.forgotten > 40 * rounds
