"""What matrix.toml says that a client cannot: each is looked at in the client itself."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.clients import NodeClient, require_cpp
from tests.interop.kits import go_sources, node_puppet
from tools.matrix import read_matrix

pytestmark = pytest.mark.timeout(600)

LACKING = [
    (client, row, reason["lacks"])
    for row, reasons in read_matrix()["cannot"].items()
    for client, reason in reasons.items()
    if "lacks" in reason
]


@pytest.mark.parametrize(("client", "row", "word"), LACKING)
def test_a_client_has_nothing_of_what_it_cannot(client, row, word):
    code = [file.read_bytes() for file in shipped(client)]
    assert any(b"PUSH" in text or b"CONSUME_FROM" in text for text in code), "this is not the client's code"
    assert not any(word.encode() in text for text in code), f"{client} may be able to: {row}"


def shipped(client: str) -> Iterator[Path]:
    """The code of a client as it was installed."""
    if client == "cpp":
        require_cpp()
        found = importlib.util.find_spec("rocketmq")
        assert found is not None and found.origin is not None
        return Path(found.origin).parent.glob("*.so")
    if client == "go":
        return (file for file in go_sources().rglob("*.go") if not file.name.endswith("_test.go"))
    packages = Path(node_puppet()[1]).parent / "node_modules"
    return (file for name in ("ali-ons", "tcp-base") for file in (packages / name / "lib").rglob("*.js"))


def test_nodes_sharding_key_chooses_no_queue_when_it_falls_on_the_first(target, topic):
    with NodeClient(target.namesrv) as node:
        queues = {
            key: {node.call("ordered", topic=topic, body="x", shard=key)["queue"] for _ in range(4)}
            for key in "abcdefgh"
        }
    assert {0, 1} in queues.values() and {1} in queues.values()
    assert {0} not in queues.values()
