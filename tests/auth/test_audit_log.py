"""The audit log: which lines it has, and that no peer and no disk stops it."""

import json
import logging

import pytest

from sparrowmq.auth import audit_log as auditing
from sparrowmq.auth import rotated_file
from sparrowmq.auth.accounts import parse_account
from sparrowmq.auth.audit_log import Audit
from sparrowmq.errors import AccessDenied, DenialKind, RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.admin_headers import (
    DeleteTopic,
    GetBrokerRuntime,
    UpdateAndCreateAclConfig,
    UpdateBrokerConfig,
)
from sparrowmq.protocol.signature import signer
from sparrowmq.remoting.pool import Pool
from sparrowmq.testing.clock import ManualClock
from tests.auth.asked import ADMIN, SAMPLE, USER, received, send
from tests.broker.live import live_broker, send_request

NO = AccessDenied("No default permission for topic:orders")
DELETE = DeleteTopic("t")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def audit(tmp_path, clock):
    return Audit(tmp_path / "logs" / "audit.log", clock)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def written(audit, event="admin"):
    audit.write()
    return lines(audit._files[event].path)


def denied(audit):
    return written(audit, "denied")


def deny(audit, request=None, address="10.0.0.7:5000", error=NO, body=b""):
    peer, command, _, header = received(request or send("orders"), body, USER, address)
    audit.denied(peer, command, header, error)


def test_an_administrators_request_has_its_account_its_object_and_its_result(audit):
    request = UpdateAndCreateAclConfig("shop-website", "a secret key", None, False)
    peer, command, _, header = received(request, b"", ADMIN)
    peer.principal = parse_account({"accessKey": ADMIN[0], "secretKey": ADMIN[1], "admin": "true"})
    done = audit.begin(peer, command, header)
    assert not audit.is_due, "the result is not known"
    done(209, "broken\nfile")
    done = audit.begin(peer, command, header)
    done(0, "a remark of a success")
    failed, succeeded = written(audit)
    assert failed["time"].endswith("Z")
    assert failed["object"] == {"access_key": "shop-website", "admin": "False"}
    assert {name: failed[name] for name in ("event", "account", "address", "code", "request", "result")} == {
        "event": "admin",
        "account": ADMIN[0],
        "address": "127.0.0.1:5000",
        "code": 50,
        "request": "UPDATE_AND_CREATE_ACL_CONFIG",
        "result": 209,
    }
    assert failed["remark"] == "broken\\nfile"
    assert succeeded["result"] == 0 and "remark" not in succeeded
    assert "a secret key" not in audit._files["admin"].path.read_text()


@pytest.mark.parametrize(
    ("body", "keys"),
    [
        (b"haSecret=abc\nlogLevel=DEBUG", "haSecret logLevel"),
        (b"haSecret: abc\nlogLevel DEBUG", "haSecret logLevel"),
        (b"haSecret=abc\\\n  def", "haSecret"),
        (b"haSecret=\\uabc\\", "(unreadable)"),
        (b"haSecret=" + b"abc" * 2000, "(unreadable)"),
    ],
)
def test_a_change_of_settings_shows_their_names_and_not_their_values(audit, body, keys):
    peer, command, _, header = received(UpdateBrokerConfig(), body, ADMIN)
    audit.begin(peer, command, header)(0, None)
    assert written(audit)[0]["object"] == {"settings": keys}


def test_a_denial_is_noted_and_counted(audit):
    deny(audit)
    deny(audit, DELETE, error=AccessDenied("an admin").of_kind(DenialKind.NEEDS_ADMIN))
    first, second = denied(audit)
    assert (first["event"], first["claimed"], first["reason"]) == ("denied", USER[0], "no_permission")
    assert first["object"]["topic"] == "orders" and first["remark"] == NO.remark.partition(": ")[2]
    assert (second["reason"], second["request"]) == ("needs_admin", "DELETE_TOPIC_IN_BROKER")
    assert audit.denials["no_permission"] == audit.denials["needs_admin"] == 1
    assert set(audit.denials) == {kind.value for kind in DenialKind}


async def test_one_address_fills_neither_log_and_hides_nothing(audit, clock, caplog):
    for number in range(1500):
        deny(audit, error=AccessDenied(f"No acl config for try\n{number}"))
    assert len(caplog.records) == auditing.MAX_LOGGED_DENIALS
    assert len(denied(audit)) == auditing.MAX_DENIALS_A_MINUTE
    deny(audit, address="10.0.0.8:5000")  # somebody else
    deny(audit, DELETE)  # a request for administrators
    assert len(caplog.records) == auditing.MAX_LOGGED_DENIALS + 2
    assert len(denied(audit)) == auditing.MAX_DENIALS_A_MINUTE + 2
    await clock.advance(61)
    deny(audit)
    left_out = 1500 - auditing.MAX_DENIALS_A_MINUTE
    assert denied(audit)[-2] == {
        "time": denied(audit)[-1]["time"],
        "event": "left_out",
        "address": "10.0.0.7",
        "count": left_out,
    }
    assert f"({left_out} more were not noted)" in caplog.records[-1].getMessage()
    assert audit.denials["no_permission"] == 1503
    assert all(record.getMessage().isprintable() for record in caplog.records)


@pytest.mark.slow
def test_many_addresses_are_counted_and_not_without_end(audit, caplog):
    caplog.set_level(logging.ERROR)
    for number in range(12_000):
        deny(audit, address=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:1")
    assert len(audit._limits[False]._counts) <= 10_000


def test_addresses_of_one_ipv6_network_count_together(audit):
    for number in range(1, 200):
        deny(audit, address=f"[2001:db8::{number}]:5000")
    assert len(denied(audit)) == auditing.MAX_DENIALS_A_MINUTE


def test_ipv4_clients_of_an_ipv6_port_count_each_for_itself(audit):
    for number in range(1, 200):
        deny(audit, address=f"[::ffff:10.0.0.{number}]:5000")
    assert len(denied(audit)) == 199


def test_denials_push_no_administrators_request_out_of_its_file(audit, monkeypatch):
    monkeypatch.setattr(rotated_file, "MAX_FILE_BYTES", 100)
    peer, command, _, header = received(DELETE, b"", ADMIN)
    audit.begin(peer, command, header)(0, None)
    for number in range(20):
        deny(audit, address=f"10.0.0.{number}:1")
        audit.write()
    folder = audit._files["admin"].path.parent
    assert lines(folder / "audit.log")[0]["request"] == "DELETE_TOPIC_IN_BROKER"
    assert lines(folder / "audit-denied.log")[0]["address"] == "10.0.0.19:1"


def test_a_disk_that_fails_costs_lines_of_both_files(tmp_path, clock):
    (tmp_path / "file").write_text("")
    audit = Audit(tmp_path / "file" / "audit.log", clock)
    peer, command, _, header = received(DELETE, b"", ADMIN)
    audit.begin(peer, command, header)(0, None)
    deny(audit)
    audit.write()
    assert audit.lost_lines == 2 and audit.is_due and "audit.log cannot be written" in audit.problem
    (tmp_path / "file").unlink()
    audit.write()
    assert audit.problem == "" and not audit.is_due


async def test_many_denials_within_seconds_show_until_they_stop(audit, clock):
    for number in range(auditing.REPORTED_DENIALS):
        assert audit.repeated_denials.last == ""
        deny(audit, address=f"10.0.0.{number}:1")
    assert audit.repeated_denials.last.startswith("requests are denied again and again, the last one is ")
    assert "10.0.0.4:1" in audit.repeated_denials.last
    await clock.advance(30)
    assert audit.repeated_denials.last == ""


def test_a_client_without_keys_is_told_from_one_whose_account_is_unknown(audit):
    error = AccessDenied("No accessKey is configured").of_kind(DenialKind.UNKNOWN_ACCOUNT)
    peer, command, _, header = received(send("orders"))
    for _ in range(auditing.REPORTED_DENIALS):
        audit.denied(peer, command, header, error)
    assert "which sends no access key: No accessKey" in audit.repeated_denials.last
    for _ in range(auditing.REPORTED_DENIALS):
        deny(audit, error=AccessDenied("No acl config for x").of_kind(DenialKind.UNKNOWN_ACCOUNT))
    assert "which sends no" not in audit.repeated_denials.last


async def test_a_broker_notes_denials_and_administrators_and_nothing_else(tmp_path):
    (tmp_path / "acl.yml").write_text(SAMPLE)
    path = tmp_path / "audit.log"
    settings = {"acl": True, "acl_file": tmp_path / "acl.yml", "audit_path": path}
    pools = [Pool(SystemClock(), sign=signer(*who)) for who in (USER, ADMIN)]
    async with live_broker(tmp_path / "stores", **settings) as live:
        user, admin = [await pool.session(live.broker.address) for pool in pools]
        await user.call(send_request("topicB"))
        with pytest.raises(AccessDenied):
            await user.call(send_request("topicA"))
        with pytest.raises(AccessDenied):
            await user.call(GetBrokerRuntime())
        await admin.call(GetBrokerRuntime())
        with pytest.raises(RemoteError):
            await admin.call(DeleteTopic("no such\nname"))
        await admin.call(UpdateAndCreateAclConfig("shop-website", "secretOfShop", None, False))
        figures = live.broker._figures.values("sparrowmq_denials_total")
    for pool in pools:
        pool.close()
    noted = [
        (line["event"], line.get("account"), line["request"], line["result"])
        for each in (tmp_path / "audit-denied.log", path)
        for line in lines(each)
    ]
    assert noted == [
        ("denied", USER[0], "SEND_MESSAGE_V2", 1),
        ("denied", USER[0], "GET_BROKER_RUNTIME_INFO", 1),
        ("admin", ADMIN[0], "GET_BROKER_RUNTIME_INFO", 0),
        ("admin", ADMIN[0], "DELETE_TOPIC_IN_BROKER", 1),
        ("admin", ADMIN[0], "UPDATE_AND_CREATE_ACL_CONFIG", 0),
    ]
    assert figures[("no_permission",)] == figures[("needs_admin",)] == 1
    assert "secretOfShop" not in path.read_text()


async def test_without_the_setting_no_file_is_written(tmp_path):
    (tmp_path / "acl.yml").write_text(SAMPLE)
    async with live_broker(tmp_path / "stores", acl=True, acl_file=tmp_path / "acl.yml", audit_log=False) as live:
        with pytest.raises(AccessDenied):
            await live.session.call(send_request("topicB"))
        assert live.broker._figures.values("sparrowmq_denials_total")[("unknown_account",)] == 1
    assert not list(tmp_path.rglob("audit*.log*"))
