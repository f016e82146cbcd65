"""Whatever one change does to a file of a store, no message is lost, changed or doubled in silence."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.mutated import Mutated, MutatedConfig, make, verifying_little


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What is mended is told; a thousand times is not wanted here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


CLOSED = [pytest.param(True, marks=pytest.mark.slow, id="closed"), pytest.param(False, id="killed")]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("closed", CLOSED)
@pytest.mark.parametrize("rounds", [60, pytest.param(3000, marks=pytest.mark.nightly)])
def test_a_change_to_the_log_is_found_before_it_is_served(tmp_path: Path, closed, rounds):
    with verifying_little():
        sent = make(tmp_path / "whole", closed, checkpoint_last=True)
    mutated = Mutated(tmp_path / "whole", tmp_path, sent)
    problems = [problem for seed in range(rounds) if (problem := mutated.play(seed, "log"))]
    assert problems == []


@pytest.mark.parametrize("rounds", [300, pytest.param(3000, marks=pytest.mark.nightly)])
def test_a_change_to_a_small_file_is_told_or_does_no_harm(tmp_path: Path, rounds):
    config = MutatedConfig(tmp_path)
    problems = [problem for seed in range(rounds) if (problem := config.play(seed))]
    assert problems == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("closed", CLOSED)
@pytest.mark.parametrize("part", ["queues", "ends", "checkpoint", "index"])
@pytest.mark.parametrize("rounds", [20, pytest.param(3000, marks=pytest.mark.nightly)])
def test_a_change_to_what_is_derived_from_the_log_does_no_harm(tmp_path: Path, closed, part, rounds):
    with verifying_little():
        sent = make(tmp_path / "whole", closed)
    mutated = Mutated(tmp_path / "whole", tmp_path, sent)
    problems = [problem for seed in range(rounds) if (problem := mutated.play(seed, part))]
    assert problems == []
