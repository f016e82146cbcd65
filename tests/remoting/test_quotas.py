"""Buckets by hand; refusals by a server on a real socket."""

from collections import Counter
from typing import Any

import pytest

from sparrowmq.errors import AccessDenied, RemoteError
from sparrowmq.protocol import hosts
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting import quotas as quotas_module
from sparrowmq.remoting.quota_rules import parse
from sparrowmq.remoting.quotas import _CHECKED_PER_NEW, Bucket, Quotas, release
from sparrowmq.remoting.session import Session
from sparrowmq.testing.clock import ManualClock
from tests.broker.live import pull_request, send_request
from tests.traced import kept_bytes


class Account:
    def __init__(self, access_key, is_admin=False):
        self.access_key, self.is_admin = access_key, is_admin


def connection(account: Any = None, host: str = "10.0.0.1:5", now: float = 0.0) -> Session:
    """A connection whose last request was read at `now`."""
    session = Session(lambda session, command: None, ManualClock())
    session.principal, session.host, session.last_read = account, hosts.pack(host), now
    return session


def quotas(text):
    return Quotas(ManualClock(), parse(text))


def send(limits, session, body=b"", topic="orders", code=310):
    limits.check(session, Command(code, body=body), send_request(topic))


def refusal(limits, session, **options):
    with pytest.raises(RemoteError) as refused:
        send(limits, session, **options)
    return refused.value


async def test_a_bucket_fills_evenly_and_not_above_its_amount():
    bucket = Bucket(10, 5, 0.0)
    assert [bucket.take(4, 0.0) for _ in range(4)] == [True, True, True, False]
    assert not bucket.take(1, 1.0), "2 came back of a debt of 2"
    assert not bucket.take(1, 1.4), "a part of one is none"
    assert bucket.take(1, 1.5)
    assert not bucket.is_full(5.0)
    assert bucket.is_full(100.0)
    assert [bucket.take(5, 100.0) for _ in range(3)] == [True, True, False]
    assert not bucket.take(1, 99.0), "a request that was read before the last one"


async def test_an_account_makes_so_many_requests_a_second(caplog):
    limits, session = quotas("account:billing requests=3/s"), connection(Account("billing"))
    for _ in range(3):
        send(limits, session)
    error = refusal(limits, session)
    assert error.code == ResponseCode.SYSTEM_BUSY
    assert error.remark.startswith("the quota of account billing is used up: requests=3/s; try again")
    assert "a quota is used up: account billing has requests=3/s" in caplog.text
    send(limits, connection(Account("other")))
    send(limits, connection())
    session.last_read = 0.5
    send(limits, session)
    assert +Counter(limits.refused) == {("account", "requests"): 1}


async def test_pulls_are_refused_with_flow_control_and_heartbeats_never():
    limits, session = quotas("address:* requests=1/s"), connection()
    send(limits, session)
    assert refusal(limits, session, code=RequestCode.PULL_MESSAGE).code == ResponseCode.FLOW_CONTROL
    send(limits, session, code=RequestCode.HEART_BEAT)
    limits.check(connection(Account("root", is_admin=True)), Command(310), send_request("orders"))


async def test_bytes_count_for_the_topic_and_a_large_message_is_a_debt():
    limits, session = quotas("topic:orders bytes=100/s"), connection()
    send(limits, session, b"x" * 250)
    assert "topic orders is used up: bytes=100/s" in refusal(limits, session).remark
    send(limits, session, b"x" * 250, topic="invoices")
    session.last_read = 1.4
    refusal(limits, session)
    session.last_read = 1.6
    send(limits, session)


async def test_the_bytes_of_answers_count_too():
    clock = ManualClock()
    limits = Quotas(clock, parse("account:reader bytes=100/s"))
    session = connection(Account("reader"))
    for _ in range(2):
        limits.count_pulled(session, "orders", 150)
    with pytest.raises(RemoteError, match="bytes=100/s"):
        limits.check(session, Command(RequestCode.PULL_MESSAGE), pull_request())
    session.last_read = 2.1
    limits.check(session, Command(RequestCode.PULL_MESSAGE), pull_request())


async def test_properties_count_like_the_body():
    limits, session = quotas("topic:orders bytes=100/s"), connection()
    limits.check(session, Command(310), send_request("orders", properties={"a": "x" * 250}))
    assert "bytes=100/s" in refusal(limits, session).remark


async def test_a_request_that_has_waited_counts_for_the_account_that_sent_it():
    limits, reader = quotas("account:reader bytes=100/s"), Account("reader")
    session = connection(reader)
    held = limits.hold(session, "orders")
    session.principal = None  # by a later request without a signature
    limits.count_pulled(session, "orders", 250, held)
    session.principal = reader
    assert "bytes=100/s" in refusal(limits, session).remark


async def test_the_most_exact_rule_counts():
    text = "address:* held=1; address:10.0.0.0/8 held=2; address:10.0.0.7 held=3; address:::/0 held=4"
    limits = quotas(text)
    hosts_of = ["192.168.0.1:5", "10.9.9.9:5", "10.0.0.7:5", "[fd00::1]:5", "[::ffff:10.0.0.7]:5"]
    most = [limits.hold(connection(host=host), "t")[0].max_held for host in hosts_of]
    assert most == [1, 2, 3, 4, 3]


async def test_each_address_of_a_network_has_its_own_quota():
    limits = quotas("address:10.0.0.0/8 requests=1/s")
    send(limits, connection(host="10.0.0.1:5"))
    send(limits, connection(host="10.0.0.2:5"))
    refusal(limits, connection(host="10.0.0.2:6"))


async def test_held_pulls_are_counted_while_they_wait():
    limits, session = quotas("topic:orders held=2"), connection()
    held = [limits.hold(session, "orders") for _ in range(2)]
    with pytest.raises(RemoteError, match="held=2") as refused:
        limits.hold(session, "orders")
    assert refused.value.code == ResponseCode.FLOW_CONTROL
    release(held[0])
    limits.hold(session, "orders")


async def test_new_topics_are_counted():
    limits, session = quotas("account:billing topics=2/h"), connection(Account("billing"))
    for _ in range(2):
        limits.create_topic(session)
    with pytest.raises(RemoteError, match="topics=2/h"):
        limits.create_topic(session)
    with pytest.raises(RemoteError, match="topics=2/h"):
        send(limits, session, code=RequestCode.UPDATE_AND_CREATE_TOPIC)


async def test_connections_of_an_account_and_of_an_address():
    limits = quotas("account:billing connections=1; address:* connections=2")
    first, second, third = (connection(Account("billing"), f"10.0.0.1:{port}") for port in range(3))
    assert [limits.connect(each) for each in (first, second, third)] == [True, True, False]
    send(limits, first)
    assert "connections=1" in refusal(limits, second).remark
    first.connection_lost(None)
    send(limits, second)
    assert limits.connect(third)
    assert limits.connect(connection(host="10.0.0.2:1"))
    assert +Counter(limits.refused) == {("address", "connections"): 1, ("account", "connections"): 1}


async def test_addresses_of_one_ipv6_network_have_one_quota():
    limits = quotas("address:* connections=2 requests=2/h")
    hosts_of = [f"[2001:db8:0:1::{number:x}]:5" for number in range(3)]
    assert [limits.connect(connection(host=host)) for host in hosts_of] == [True, True, False]
    for host in hosts_of[:2]:
        send(limits, connection(host=host))
    error = refusal(limits, connection(host=hosts_of[2]))
    assert "the quota of address 2001:db8:0:1::/64 is used up" in error.remark
    send(limits, connection(host="[2001:db8:0:2::1]:5"))


async def test_a_rule_for_a_part_of_an_ipv6_network_counts_each_address_of_the_part():
    limits = quotas("address:* connections=1; address:2001:db8::/120 connections=1")
    inside, outside = ["[2001:db8::1]:5", "[2001:db8::2]:5"], ["[2001:db8::1:1]:5", "[2001:db8::1:2]:5"]
    assert [limits.connect(connection(host=host)) for host in inside] == [True, True]
    assert [limits.connect(connection(host=host)) for host in outside] == [False, False], (
        "the network has two connections already"
    )


async def test_an_ipv4_address_inside_ipv6_is_no_network():
    limits = quotas("address:* connections=1")
    hosts_of = ["[::ffff:10.0.0.1]:5", "[::ffff:10.0.0.2]:5", "10.0.0.1:6"]
    assert [limits.connect(connection(host=host)) for host in hosts_of] == [True, True, False]


async def test_open_connections_count_for_rules_that_come_later():
    limits = quotas("")
    first, second = connection(), connection()
    assert limits.connect(first)
    assert limits.connect(second)
    limits.apply_rules(parse("address:* connections=2"))
    assert not limits.connect(connection())
    for each in (first, second):
        each.connection_lost(None)
    assert limits.connect(connection())
    assert len(limits._open_counts) == 1


def deny(limits, session):
    with pytest.raises(RemoteError) as answer:
        limits.count_early_refusal(session, Command(310, body=b"x" * 10), None, AccessDenied("wrong signature"))
        raise AccessDenied("wrong signature")
    return answer.value.code


async def test_denied_requests_count_for_the_address_and_for_no_topic():
    limits, stranger = quotas("address:* requests=2/s; topic:orders requests=1/h"), connection()
    assert [deny(limits, stranger) for _ in range(3)] == [1, 1, ResponseCode.SYSTEM_BUSY]
    send(limits, connection(host="10.0.0.2:5"))


async def test_clients_without_an_account_wait_while_denials_have_used_up_their_address():
    limits, stranger = quotas("address:* bytes=20/s"), connection()
    limits.admit(stranger.host, 0.0)
    assert [deny(limits, stranger) for _ in range(3)] == [1, 1, ResponseCode.SYSTEM_BUSY]
    with pytest.raises(RemoteError, match="bytes=20/s"):
        limits.admit(stranger.host, 0.04)
    limits.admit(connection(host="10.0.0.2:5").host, 0.0)
    limits.admit(stranger.host, 0.06)
    stranger.applied_quotas = "of an allowed request"
    stranger.last_read = 0.06
    deny(limits, stranger)
    assert stranger.applied_quotas is None


async def test_requests_with_other_errors_count_but_lock_nobody_out():
    limits, session = quotas("address:* requests=1/s"), connection()
    limits.count_early_refusal(session, Command(9999), None, RemoteError(3, "unknown code"))
    with pytest.raises(RemoteError, match="requests=1/s"):
        limits.count_early_refusal(session, Command(9999), None, RemoteError(3, "unknown code"))
    limits.admit(session.host, 0.0)


async def test_other_rules_count_at_once():
    limits, session = quotas("topic:orders requests=1/h"), connection()
    send(limits, session)
    limits.apply_rules(parse("topic:orders requests=1/h"))
    refusal(limits, session)
    limits.apply_rules(parse("topic:orders requests=2/h"))
    send(limits, session)
    limits.apply_rules(())
    assert not limits.is_on


async def test_addresses_that_use_nothing_are_forgotten(monkeypatch):
    monkeypatch.setattr(quotas_module, "MOST_KNOWN", 100)
    limits = quotas("address:* requests=1/s")
    for number in range(1000):
        send(limits, connection(host=f"10.0.{number // 250}.{number % 250}:1", now=number))
    assert len(limits._addresses.usages) <= 101


async def test_names_above_the_limit_share_a_quota_and_cost_no_search(monkeypatch):
    monkeypatch.setattr(quotas_module, "MOST_KNOWN", 50)
    limits, session = quotas("topic:* requests=2/h"), connection()
    for number in range(52):
        send(limits, session, topic=f"made-up-{number}")
    assert "beyond 50 others" in refusal(limits, session, topic="made-up-52").remark
    send(limits, session, topic="made-up-7")
    refusal(limits, session, topic="made-up-7")
    before = list(limits._topics.usages)
    refusal(limits, session, topic="made-up-53")
    moved = before[_CHECKED_PER_NEW:] + before[:_CHECKED_PER_NEW]
    assert list(limits._topics.usages) == moved, "those that it has looked at are last"
    session.last_read = 7200.0
    monkeypatch.undo()
    send(limits, session, topic="orders")
    assert "orders" in limits._topics.usages


async def test_names_that_no_topic_can_have_are_not_kept():
    limits, session = quotas("topic:* requests=1/s"), connection()
    with kept_bytes() as kept:
        for number in range(20):
            send(limits, session, topic="t" * 100_000 + str(number))
        send(limits, session)
    assert kept() < 1_000_000


async def test_the_latest_refusal_shows_until_there_are_other_rules():
    limits, session = quotas("account:reader requests=1/h"), connection(Account("reader"))
    send(limits, session)
    assert limits.recent_refusals.last == ""
    refusal(limits, session)
    assert limits.recent_refusals.last == "requests are refused: account reader has requests=1/h"
    limits.apply_rules(parse("account:reader requests=2/h"))
    assert limits.recent_refusals.last == ""
