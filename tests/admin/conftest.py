"""A cluster of two brokers, and an operator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sparrowmq.admin.admin import Admin
from sparrowmq.testing.cluster import Cluster
from tests.client.conftest import cluster as cluster
from tests.client.conftest import mq as mq


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path / "two", brokers=2) as started:
        yield started


@pytest.fixture
async def admin(two: Cluster) -> AsyncIterator[Admin]:
    async with Admin(two.namesrv) as entered:
        yield entered
