"""Pop consumption beside kill -9: nothing lost, nothing again too soon, nothing back after its acknowledgement."""

import random
from pathlib import Path

import pytest

from tests.crash.pop_fire import PopFire


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("flush", "kills"),
    [
        pytest.param("SYNC_FLUSH", 3, marks=pytest.mark.slow),
        pytest.param("ASYNC_FLUSH", 8, marks=pytest.mark.slow),
        pytest.param("ASYNC_FLUSH", 200, marks=[pytest.mark.nightly, pytest.mark.timeout(7200)]),
    ],
)
async def test_pops_under_fire(tmp_path: Path, flush: str, kills: int) -> None:
    await play(tmp_path, flush, kills)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("flush", "kills"),
    [
        pytest.param("ASYNC_FLUSH", 2, marks=pytest.mark.slow),
        pytest.param("SYNC_FLUSH", 8, marks=pytest.mark.slow),
        pytest.param("ASYNC_FLUSH", 200, marks=[pytest.mark.nightly, pytest.mark.timeout(7200)]),
    ],
)
async def test_orderly_pops_under_fire(tmp_path: Path, flush: str, kills: int) -> None:
    await play(tmp_path, flush, kills, groups=30)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_batches_under_fire(tmp_path: Path) -> None:
    await play(tmp_path, "ASYNC_FLUSH", 2, batch=100, members=64)


async def play(path: Path, flush: str, kills: int, groups: int = 0, batch: int = 1, members: int = 16) -> None:
    seed = random.randrange(1 << 32)
    fire = PopFire(path, flush, seed, groups=groups, batch=batch, members=members)
    await fire.play(kills)
    pops = fire.pops
    print(f"seed {seed}: {pops.sent} sent, {pops.acknowledged} acknowledged, {pops.again} came again")
    assert pops.wrong == [], f"seed {seed}"
    assert pops.sent > 20 * batch * kills
