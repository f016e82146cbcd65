"""kill -9 of the broker under load: no acknowledged message lost, none invented, order kept."""

import random
from pathlib import Path

import pytest

from tests.crash.__main__ import kill_and_check
from tests.crash.rounds import CrashRig, sentences


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("flush", "rounds"),
    [
        ("ASYNC_FLUSH", 6),
        ("SYNC_FLUSH", 6),
        pytest.param("ASYNC_FLUSH", 50, marks=pytest.mark.slow),
        pytest.param("SYNC_FLUSH", 50, marks=pytest.mark.slow),
    ],
)
async def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path, flush: str, rounds: int) -> None:
    seed = random.randrange(1 << 32)
    rig = CrashRig(tmp_path, flush, seed)
    await kill_and_check(rig, rounds)
    print(f"seed {seed}:", *sentences(rig.tally, rig.ledger), sep="\n")
    assert rig.tally.violations == [], f"seed {seed}"
    assert rig.ledger.acked > 40 * rounds
