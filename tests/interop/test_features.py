"""What not every foreign client can: any-time delay, SQL92, transactions, requests, trace, namespaces, resets.

What one of them cannot stands in matrix.toml, and is skipped with that reason.
"""

from __future__ import annotations

import time

import pytest

from tests.interop.clients import GoClient

RESET_OFFSET = 222  # INVOKE_BROKER_TO_RESET_OFFSET
DELAY_MS = 1500


@pytest.mark.cell("time")
def test_a_message_comes_at_any_time_it_asks_for(target, client, topic, group):
    if not target.is_ours:
        pytest.skip("Apache's 4.9.7 cannot: it knows levels only")
    due = round(time.time() * 1000) + DELAY_MS
    with client.consume(group, topic) as consumer:
        client.send(topic, "late", **{"property.TIMER_DELIVER_MS": due})
        client.send(topic, "soon")
        received = {event["body"]: event for event in consumer.wait_for(2)}
    assert due <= received["late"]["stored"] < due + 1500
    assert received["soon"]["stored"] < received["late"]["stored"] and received["late"]["topic"] == topic


@pytest.mark.cell("sql")
def test_a_consumer_gets_what_its_sql_filter_lets_through(client, topic, group):
    expression = "n BETWEEN 3 AND 5 AND (colour = 'blue' OR TAGS IS NOT NULL)"
    with client.consume(group, topic, expression, type="SQL92") as consumer:
        for number in range(8):
            more = {"tags": "TagA"} if number % 2 else {"colour": "blue" if number < 5 else "red"}
            client.send(topic, f"{number}", **{"property.n": number}, **more)
        client.send(topic, "no property")
        client.send(topic, "last", colour="blue", how="ordered", shard=0, **{"property.n": 5})
        client.send(topic, "last too", colour="blue", how="ordered", shard=1, **{"property.n": 5})
        consumer.wait_for_bodies(["last", "last too"])
        assert sorted(consumer.bodies()) == ["3", "4", "5", "last", "last too"]


@pytest.mark.cell("transaction")
def test_a_committed_message_is_delivered_and_one_rolled_back_is_not(client, topic, group):
    with client.consume(group, topic) as consumer:
        client.transact(f"{group}-p", topic, "rolled back", now="rollback")
        sent = client.transact(f"{group}-p", topic, "committed", now="commit")
        client.send(topic, "last", how="ordered", shard=0)
        client.send(topic, "last too", how="ordered", shard=1)
        received = {event["body"]: event for event in consumer.wait_for(3)}
    assert received.keys() == {"committed", "last", "last too"}
    assert received["committed"]["id"] == sent["id"] and received["committed"]["topic"] == topic


@pytest.mark.cell("check")
def test_the_broker_asks_about_a_transaction_that_stays_open(client, topic, group):
    with client.consume(group, topic) as consumer:
        client.transact(f"{group}-p", topic, f"to commit in {topic}", now="unknown", later="commit")
        client.transact(f"{group}-p", topic, f"to roll back in {topic}", now="unknown", later="rollback")
        consumer.wait_for_bodies([f"to commit in {topic}"])
        consumer.wait_until(
            lambda: {f"to commit in {topic}", f"to roll back in {topic}"} <= set(client.checks()), "not asked"
        )
        assert consumer.bodies() == [f"to commit in {topic}"]


@pytest.mark.cell("request")
def test_a_request_is_answered_by_another_client(client, topic, group):
    with client.consume(group, topic):
        assert client.call("request", topic=topic, body="EURUSD")["body"] == "re: EURUSD"


@pytest.mark.cell("trace", nightly_with=("java-5.4.0",))  # It takes 5 to 10 s, as 4.9.8 does not.
def test_a_producer_that_traces_writes_where_its_message_went(client, topic, group):
    with client.producing(trace="yes"):
        sent = client.send(topic, "traced", keys="key-1")
        with client.consume(group, "RMQ_SYS_TRACE_TOPIC") as consumer:
            consumer.wait_until(lambda: any(sent["id"] in body for body in consumer.bodies()), "no trace")
    (trace,) = [body for body in consumer.bodies() if sent["id"] in body]
    assert trace.startswith("Pub\x01") and topic in trace.split("\x01")


@pytest.mark.cell("namespace", nightly_with=("java-5.4.0",))  # It takes 5 to 10 s, as 4.9.8 does not.
def test_a_namespace_keeps_topics_and_groups_apart(target, client, topic, group):
    target.create_topic(f"room%{topic}")
    with client.producing(namespace="room"):
        client.send(topic, "in the room")
    client.send(topic, "outside")
    with client.consume(group, topic, namespace="room") as inside, client.consume(group, topic) as outside:
        (received,) = inside.wait_for(1)
        outside.wait_for(1)
        assert (inside.bodies(), outside.bodies()) == (["in the room"], ["outside"])
        assert len(target.members(f"room%{group}")) == len(target.members(group)) == 1
    assert sum(target.end_of(f"room%{topic}", queue) for queue in range(2)) == 1
    assert received["topic"] in (topic, f"room%{topic}")


# Each stops for 15 or 20 s. The short forms are our own client's, and the order's bytes in test_answers.py.
@pytest.mark.cell("reset", nightly_with=("java-4.9.8", "java-5.4.0", "java-4.9.8-binary", "cpp", "go"))
def test_a_running_group_goes_back_when_the_operator_says_so(target, client, topic, group):
    client.send(topic, "0", how="ordered", shard=0)
    client.send(topic, "1", how="ordered", shard=1)
    with client.consume(group, topic) as consumer:
        consumer.wait_for(2)
        # Brokers know a group by what it committed.
        consumer.wait_until(
            lambda: all(target.committed(group, topic, queue) == 1 for queue in range(2)),
            "not all is committed",
        )
        fields = {"topic": topic, "group": group, "timestamp": 0, "isForce": "true"}
        # By its language an admin chooses the form of Apache's order; ours gives each member its own.
        admin = "CPP" if client.name.startswith("cpp") and not target.is_ours else "JAVA"
        assert target.ask(RESET_OFFSET, fields, language=admin).code == 0
        received = consumer.wait_for(4)
    assert sorted(event["body"] for event in received) == ["0", "0", "1", "1"]


@pytest.mark.slow
@pytest.mark.cell("pull", columns=["go"])
def test_gos_pull_consumer_gets_what_matches(target, topic, group):
    with GoClient(target.namesrv) as go:
        for number in range(6):
            go.send(topic, f"{number}", how="ordered", shard=number % 2, tags=f"Tag{'ABC'[number % 3]}")
        assert sorted(go.pull(group, topic, 4, "TagA || TagB")) == ["0", "1", "3", "4"]
