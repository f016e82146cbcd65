"""Clusters and databases for programs whose effects happen once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from sparrowmq.once.sql import metadata
from sparrowmq.protocol.delay_levels import DelayLevels
from sparrowmq.testing import Cluster
from sparrowmq.testing.background import BackgroundCluster
from tests.client.conftest import mq as mq
from tests.interop.servers import DELAY_LEVELS
from tests.once.postgres import LivePostgres, needs_postgres

BILLS = sa.Table("bills", metadata, sa.Column("bill", sa.String(64), nullable=False))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """A cluster whose retries come after a second."""
    async with Cluster(tmp_path / "cluster", delay_levels=DelayLevels.parse(DELAY_LEVELS)) as started:
        yield started


@pytest.fixture
def background(tmp_path: Path) -> Iterator[BackgroundCluster]:
    """A cluster for tests without async."""
    with BackgroundCluster(tmp_path / "cluster") as started:
        yield started


@pytest.fixture(scope="module")
def postgres() -> Iterator[LivePostgres]:
    with LivePostgres() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=needs_postgres)])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    """A database with both tables of `once`, and a table `bills`: a real file, or a real server."""
    is_file = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/shop.db" if is_file else request.getfixturevalue("postgres").url
    engine = sa.create_engine(url)
    metadata.drop_all(engine)
    metadata.create_all(engine)
    yield engine
    engine.dispose()
