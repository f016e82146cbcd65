"""The pytest plugin: a real broker for tests, started once, in this process.

    async def test_billing(rocketmq, rocketmq_topic):      # or rocketmq_sync, without async
        await rocketmq.send(rocketmq_topic, b"1", tag="paid")

    pytest                                       a cluster of our own, in a temporary folder
    pytest --rocketmq-addr 10.0.0.1:9876         the same tests against a running cluster, Apache's too

`rocketmq` is a fixture of pytest-asyncio where that is installed, and else one that anyio's plugin drives.
pytest imports this package in every project where SparrowMQ is installed: it must load nothing.
"""

from __future__ import annotations

import itertools
import logging
import re
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from typing import TYPE_CHECKING, NamedTuple

import pytest

try:
    from pytest_asyncio import fixture as async_fixture
except ImportError:
    async_fixture = pytest.fixture  # type: ignore[assignment]

if TYPE_CHECKING:
    from sparrowmq.client.blocking_client import SyncClient
    from sparrowmq.client.client import Client

_numbers = itertools.count(1)


class _PlainImport:
    """Finds the modules of SparrowMQ as Python does.

    pytest rewrites the assertions of every module of a distribution with a plugin. Here these are hundreds of modules
    without an assertion of a test.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path) if name.partition(".")[0] in _PACKAGES else None


_PACKAGES = {"sparrowmq", "pyspark_rocketmq"}
sys.meta_path.insert(0, _PlainImport)


class RocketmqServer(NamedTuple):
    """The cluster of the tests: its name server's address, host:port."""

    namesrv: str


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sparrowmq", "message queue (sparrowmq)")
    group.addoption(
        "--rocketmq-addr",
        metavar="HOST:PORT",
        help="name server of a running cluster; without it the fixtures start one of their own",
    )


def pytest_unconfigure() -> None:
    """Let the process end without the warning of handlers that were never served: tests call them themselves."""
    logging.getLogger("sparrowmq.client.handlers").setLevel(logging.ERROR)


@pytest.fixture(scope="session")
def rocketmq_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RocketmqServer]:
    """A name server and a broker; `.namesrv` is the address."""
    address = request.config.getoption("--rocketmq-addr")
    if address:
        if reason := _why_unreachable(address):
            pytest.fail(f"--rocketmq-addr {address}: {reason}", pytrace=False)
        yield RocketmqServer(address)
        return
    from sparrowmq.testing.background import BackgroundCluster

    with BackgroundCluster(
        tmp_path_factory.mktemp("rocketmq"), trace_topic_enabled=True, property_filter=True
    ) as cluster:
        yield RocketmqServer(cluster.namesrv)


def _why_unreachable(address: str) -> str:
    """The reason why no name server answers there, in one sentence; empty if one does."""
    from sparrowmq.admin.blocking_admin import admin
    from sparrowmq.errors import SparrowError

    try:
        with admin(address) as operator:
            operator.clusters()
    except SparrowError as error:
        return str(error)
    return ""


@pytest.fixture
def rocketmq_topic(request: pytest.FixtureRequest) -> str:
    """The name of a topic that no other test uses; the first message makes it."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name)[:80]
    return f"{readable}-{next(_numbers)}"


@async_fixture
async def rocketmq(rocketmq_server: RocketmqServer) -> AsyncIterator[Client]:
    """A client of the cluster, closed after the test."""
    from sparrowmq.client.client import connect

    async with connect(rocketmq_server.namesrv) as client:
        yield client


@pytest.fixture
def rocketmq_sync(rocketmq_server: RocketmqServer) -> Iterator[SyncClient]:
    """As `rocketmq`, for tests that are not async."""
    from sparrowmq.client.blocking_client import connect

    with connect(rocketmq_server.namesrv) as client:
        yield client
