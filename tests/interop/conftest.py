"""What the tests of foreign clients share: a running cluster, and a client, each started once.

Each test runs against our own broker; marked slow, it also runs against Apache's, which shows that the test is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.interop.clients import Client, CppClient, JavaClient
from tests.interop.servers import APACHE, OURS, Target, running

# How the 4.9.8 client writes headers when it is told so; its other messages are JSON.
BINARY_HEADERS = "-Drocketmq.serialize.type=ROCKETMQ"
_NUMBERS = count(1)


@pytest.fixture(scope="session", params=[OURS, pytest.param(APACHE, marks=pytest.mark.slow)])
def target(request, tmp_path_factory) -> Iterator[Target]:
    with running(request.param, tmp_path_factory.mktemp("cluster")) as target:
        yield target


@pytest.fixture(
    scope="session",
    params=["cpp", "java-4.9.8", "java-5.4.0", pytest.param("java-4.9.8-binary", marks=pytest.mark.slow)],
)
def client(request, target) -> Iterator[Client]:
    with start_client(request.param, target) as client:
        yield client


@pytest.fixture(scope="session", params=["java-4.9.8", "java-5.4.0"])
def java(request, target) -> Iterator[JavaClient]:
    with start_client(request.param, target) as client:
        assert isinstance(client, JavaClient)
        yield client


@pytest.fixture
def topic(target) -> str:
    """A topic of two queues that only this test uses."""
    name = f"Interop-{next(_NUMBERS)}"
    target.create_topic(name)
    return name


@pytest.fixture
def group() -> str:
    """A name for a consumer group that nobody used."""
    return f"interop-group-{next(_NUMBERS)}"


def start_client(name: str, target: Target) -> Client:
    if name == "cpp":
        return CppClient(target.namesrv)
    version = name.split("-")[1]
    return JavaClient(version, target.namesrv, jvm=[BINARY_HEADERS] if name.endswith("binary") else [])
