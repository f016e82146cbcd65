"""What the C++ client does beyond test_clients.py: pulling, and reading what other clients wrote."""

from __future__ import annotations

import pytest

from tests.interop.clients import CppClient


@pytest.fixture
def cpp(target):
    with CppClient(target.namesrv) as client:
        yield client


@pytest.mark.slow
@pytest.mark.covers("S-CONS-01", "S-CONS-15")
@pytest.mark.cell("pull")
def test_a_pull_consumer_reads_every_queue_to_its_end(cpp, topic, group):
    for number in range(40):
        cpp.send(topic, f"{number}", how="ordered", shard=number, tags="TagA" if number % 4 else "TagB")
    assert sorted(cpp.pull(group, topic), key=int) == [f"{number}" for number in range(40)]
    assert sorted(cpp.pull(group, topic, expression="TagB"), key=int) == [f"{number}" for number in range(0, 40, 4)]


@pytest.mark.covers("S-PROD-17", "S-PROD-18")
def test_cpp_and_java_clients_read_what_the_other_wrote(cpp, java, topic, group):
    for client in (cpp, java):
        client.send(topic, f"by {client.name}", tags="TagA", keys="key-1 key-2", colour="grün")
        client.send(topic, f"{client.name} ", times=1000)
    java.send(topic, "one|two", how="batch")
    everything = [
        "by cpp-0.4.4",
        f"by {java.name}",
        "cpp-0.4.4 " * 1000,
        f"{java.name} " * 1000,
        "one",
        "two",
    ]
    with cpp.consume(f"{group}-cpp", topic) as by_cpp, java.consume(f"{group}-java", topic) as by_java:
        for consumer in (by_cpp, by_java):
            received = {event["body"]: event for event in consumer.wait_for_bodies(everything)}
            assert len(received) == 6
            for sender in (cpp, java):
                written = received[f"by {sender.name}"]
                assert (written["tags"], written["keys"], written["colour"]) == (
                    "TagA",
                    "key-1 key-2",
                    "grün",
                )
