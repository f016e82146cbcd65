"""One member of two or three is killed and damaged: nothing acknowledged is lost, and no offset is given twice."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.replication.damaged_members import Killed
from tests.store.mutated import verifying_little

SEED = int(os.environ.get("SPARROWMQ_SEED", "51000000"))
_PER_GROUP = 40  # rounds with the same messages


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """A thousand repairs are not wanted in the log of a test."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(20_000)
@pytest.mark.parametrize(
    "rounds", [pytest.param(50, marks=pytest.mark.slow), pytest.param(100_000, marks=pytest.mark.nightly)]
)
def test_damage_at_one_member_loses_no_acknowledged_message(tmp_path: Path, rounds: int) -> None:
    problems: list[str] = []
    with verifying_little():
        for first in range(0, rounds, _PER_GROUP):
            group = Killed(tmp_path / f"group-{first}", SEED + first)
            seeds = range(SEED + first, SEED + min(first + _PER_GROUP, rounds))
            problems += [each for seed in seeds if (each := group.play(tmp_path / "scratch", seed))]
    assert problems == []
