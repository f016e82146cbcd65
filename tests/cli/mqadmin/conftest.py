"""A cluster in the background, and the tool in this process: `admin("topicList")` is what it wrote and how it ended."""

import io
from dataclasses import dataclass
from zlib import crc32

import pytest

from sparrowmq.cli.mqadmin.main import run
from sparrowmq.client.client import Client
from sparrowmq.testing.background import BackgroundCluster


@dataclass
class Said:
    """What a command wrote, and how it ended."""

    code: int
    out: str
    err: str


class Tool:
    """The tool for one cluster."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.broker = cluster.cluster.brokers[0].address

    def __call__(self, line, **words):
        """Run a command line; `{broker}` in it is the broker's address, other words in braces are given."""
        known = {"broker": self.broker, **words}
        out, err = io.StringIO(), io.StringIO()
        asked = [word.format(**known) for word in line.split()]
        code = run([*asked, "-n", self.cluster.namesrv], out, err)
        return Said(code, out.getvalue(), err.getvalue())

    def ok(self, line, **words):
        """The same, for a command that has to go well; returns what it wrote."""
        said = self(line, **words)
        assert (said.code, said.err) == (0, ""), said
        return said.out

    def send(self, topic, *bodies, **options):
        """Send messages with our client; returns where they went."""

        async def send():
            async with Client(self.cluster.namesrv) as mq:
                return [await mq.send(topic, body, **options) for body in bodies]

        return self.cluster.run(send())


@pytest.fixture(scope="package")
def shared_cluster(tmp_path_factory):
    """One for all tests of the tool; each uses topics and groups of its own."""
    with BackgroundCluster(tmp_path_factory.mktemp("mqadmin")) as cluster:
        yield cluster


@pytest.fixture
def admin(shared_cluster, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    monkeypatch.delenv("SPARROWMQ_JAVA_EXIT_CODES", raising=False)
    return Tool(shared_cluster)


@pytest.fixture
def topic(admin, request):
    """A topic of the test's own, with two queues."""
    name = f"T{crc32(request.node.nodeid.encode())}"  # the same each time, as the order of hash tables follows from it
    admin.ok(f"updateTopic -b {{broker}} -t {name} -r 2 -w 2")
    return name
