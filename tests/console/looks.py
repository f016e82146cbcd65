"""A cluster of two brokers in this process, and the console's look at it, for tests without a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sparrowmq.console.cluster_view import ClusterView
from sparrowmq.testing import Cluster


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path / "two", brokers=2) as started:
        yield started


@pytest.fixture
async def look(two: Cluster) -> AsyncIterator[ClusterView]:
    async with ClusterView(two.namesrv) as entered:
        yield entered
