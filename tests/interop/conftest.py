"""What the tests of clients share: a running cluster, and a client, each started once.

They end with the last test of this folder, not with the run: an idle broker of Apache's uses 3 % of a processor.
Each test of a foreign client runs against our own broker; marked nightly, it also runs against Apache's, which shows
that the test is right. Those of our own client run against the brokers that our_client.py names.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count

import pytest

import sparrowmq
from tests.interop.clients import Client, CppClient, GoClient, JavaClient, NodeClient
from tests.interop.servers import APACHE, OURS, Target, running
from tools.matrix import cannot, read_matrix

# How the 4.9.8 client writes headers when it is told so; its other messages are JSON.
BINARY_HEADERS = "-Drocketmq.serialize.type=ROCKETMQ"
# What is built or installed once per machine takes its time.
GO = pytest.param("go", marks=pytest.mark.timeout(600))
NODE = pytest.param("node", marks=pytest.mark.timeout(600))
JAVA_5 = "java-5.4.0"
OTHERS = {"cpp": CppClient, "go": GoClient, "node": NodeClient}
IN_SHORT = {"test_java_client.py"}
_NUMBERS = count(1)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leaves a test out of `./run test` with those clients that take long for it; with the others it stays.

    Go and Node are installed for them. Of those with Java, which takes a second of two processors to start, only the
    few of `IN_SHORT` stay.
    """
    params = getattr(item, "callspec", None)
    values = set(map(str, params.params.values())) if params else set()
    for mark in item.iter_markers("cell"):
        if set(mark.kwargs.get("nightly_with", ())) & values:
            item.add_marker(pytest.mark.nightly)
    is_java = any(value.startswith("java-") for value in values)
    if values & {"go", "node"} or (is_java and item.path.name not in IN_SHORT):
        item.add_marker(pytest.mark.slow)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what a client or a broker cannot, with the reason that docs/understand/interop.md gives."""
    matrix, params = read_matrix(), getattr(item, "callspec", None)
    for mark in item.iter_markers("cell"):
        for name in params.params.values() if params else []:
            reason = cannot(matrix, mark.args[0], str(name).removesuffix("-binary"))
            if reason is not None:
                pytest.skip(f"{name} cannot: {reason}")


@pytest.fixture(scope="package", params=[OURS, pytest.param(APACHE, marks=pytest.mark.nightly)])
def target(request, tmp_path_factory) -> Iterator[Target]:
    with running(request.param, tmp_path_factory.mktemp("cluster")) as target:
        yield target


@pytest.fixture(
    scope="package",
    params=[
        "cpp",
        GO,
        NODE,
        "java-4.9.8",
        JAVA_5,
        pytest.param("java-4.9.8-binary", marks=pytest.mark.nightly),
    ],
)
def client(request, target) -> Iterator[Client]:
    with start_client(request.param, target) as client:
        yield client


@pytest.fixture(scope="package", params=["java-4.9.8", pytest.param(JAVA_5, marks=pytest.mark.slow)])
def java(request, target) -> Iterator[JavaClient]:
    with start_client(request.param, target) as client:
        assert isinstance(client, JavaClient)
        yield client


@pytest.fixture
async def mq(target) -> AsyncIterator[sparrowmq.Client]:
    """Our own client; tests of it say with `our_client.EVERY_BROKER` which `target` they want."""
    async with sparrowmq.connect(target.namesrv, group="tellers") as client:
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
    if name in OTHERS:
        return OTHERS[name](target.namesrv)
    version = name.split("-")[1]
    return JavaClient(version, target.namesrv, jvm=[BINARY_HEADERS] if name.endswith("binary") else [])


@pytest.fixture(scope="package")
def apaches_mqadmin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Future[dict[str, str]]]:
    """What Java's admin tool says of Apache's servers, command by command, as soon as it has said it all."""
    from tests.interop.test_mqadmin import play

    with ThreadPoolExecutor(1) as aside:
        yield aside.submit(play, APACHE, tmp_path_factory.mktemp("javas-tool"))
