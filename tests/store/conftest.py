"""Stores that are verified after each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparrowmq.testing.clock import ManualClock
from tests.store.stores import Stores


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    """`stores.open()`: a small store in `tmp_path`; whatever the test leaves of it is recovered and verified."""
    stores = Stores(tmp_path)
    yield stores
    stores.check()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()
