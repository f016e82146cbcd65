"""What goes wrong in the field, and the remedies, which are done as doctor says them.

@cause("drained", "broker-c")
def a_forgotten_drain(field):
    field.run("broker", "drain", "broker-c")            # it goes wrong
    remedy = yield                                      # doctor says what to do
    field.follow(remedy, "undrain")    # the remedy, as it is written
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from contextlib import ExitStack, suppress
from typing import Final

from tests.conditions import disk_causes, group_causes
from tests.conditions.cause import CAUSES, Cause, Course, cause, program, sending
from tests.conditions.field import FILES, OVER_S, SECRET, Field, FieldBroker, until
from tests.interop.servers import OURS, Target, topic_fields

__all__ = ["CAUSES", "Cause", "Course", "disk_causes", "group_causes"]

_AHEAD_MS: Final = 3_600_000
_TRANSACTION: Final = """
import asyncio, sys
from sparrowmq import connect
async def main():
    async with connect(sys.argv[1], group="payments") as mq:
        @mq.check()
        def decide(message):
            return True
        if sys.argv[2] == "begin":
            transaction = mq.transaction("Payments", b"paid")
            await transaction.__aenter__()
            await transaction.unknown()
        else:
            async with mq.transaction("Payments", b"another"):
                pass
            await asyncio.sleep(30)
asyncio.run(main())
"""
# Other servers --------------------------------------------------------------------------------------------------------


@cause("name_server_away", "broker-c")
def a_name_server_that_died(field: Field) -> Course:
    field.names[1].kill()
    remedy = yield
    remedy.names("start it again")
    field.names[1].__enter__()


@cause("unregistered", "broker-c")
def no_name_server_at_all(field: Field) -> Course:
    for each in field.names:
        each.kill()
    yield
    for each in field.names:
        each.__enter__()


@cause("master_not_followed", "slave-a")
def a_slave_with_another_secret(field: Field) -> Course:
    right = field.slave.conf.read_text()
    field.slave.stop()
    field.slave.conf.write_text(right.replace(SECRET, "another"))
    field.slave.start_again()
    remedy = yield
    assert "haSecret" in remedy.what, remedy.what
    field.slave.stop()
    field.slave.conf.write_text(right)
    field.slave.start_again()


@cause("name_taken", "broker-c", is_slow=True)
def a_second_broker_of_the_same_name(field: Field) -> Course:
    with ExitStack() as stack:
        place = field.folder / f"double-{time.time_ns()}"
        place.mkdir()
        double = stack.enter_context(FieldBroker("broker-c", field.namesrv, place, {"storePathRootDir": place / "s"}))
        remedy = yield
        remedy.names("stop one of the two", "brokerName of its own", "start it again")
        double.stop()
        double.conf.write_text(double.conf.read_text().replace("brokerName=broker-c", f"brokerName={place.name}"))
        double.start_again()
        field.keep(stack.pop_all())


@cause("no_slave", "broker-a")
def a_slave_that_died(field: Field) -> Course:
    field.slave.kill()
    remedy = yield
    remedy.names("start a slave")
    field.slave.start_again()


@cause("slave_gone", "broker-a", root="no_slave")
def a_slave_that_was_stopped(field: Field) -> Course:
    field.slave.stop()
    remedy = yield
    remedy.names("start the slave again")
    field.slave.start_again()


@cause("slave_behind", "broker-a", is_slow=True)
def a_frozen_slave(field: Field) -> Course:
    field.create("Behind", field.a)
    os.kill(field.slave.pid, signal.SIGSTOP)
    with sending(field, "Behind"):
        remedy = yield
    remedy.names("see that the slave runs")
    os.kill(field.slave.pid, signal.SIGCONT)


@cause("master_not_followed", "slave-a")
def a_master_that_died(field: Field) -> Course:
    field.a.kill()
    remedy = yield
    remedy.names("do what the text says")
    assert "cannot connect" in remedy.what or "it closed the connection" in remedy.what, remedy.what
    field.a.start_again()


# The broker itself ----------------------------------------------------------------------------------------------------


@cause("drained", "broker-c")
def a_forgotten_drain(field: Field) -> Course:
    field.run("broker", "drain", "broker-c")
    remedy = yield
    field.follow(remedy, "undrain")


@cause("drained", "broker-b")
def a_permission_that_was_taken(field: Field) -> Course:
    field.run("broker", "set", "broker-b", "brokerPermission=4")
    remedy = yield
    said = field.run("broker", "undrain", "broker-b", may_fail=True)
    assert "brokerPermission=6" in said, "the wrong one of the two commands says so"
    field.follow(remedy, "brokerPermission")


@cause("certificate", "broker-c")
def a_certificate_that_expired(field: Field) -> Course:
    field.certify("expired", days=-1)
    remedy = yield
    remedy.names("renew it", "sign a new one with your own CA", "without a restart")
    assert "ended at" in remedy.what
    field.certify("renewed", days=300)


@cause("certificate", "broker-c")
def a_certificate_that_expires_soon(field: Field) -> Course:
    field.certify("soon", days=5)
    remedy = yield
    remedy.names("renew it", "sign a new one with your own CA", "without a restart")
    assert "ends at" in remedy.what
    field.certify("renewed", days=300)


@cause("certificate", "broker-c")
def a_certificate_with_the_key_of_another(field: Field) -> Course:
    field.pair.key.write_text(field.vouching.key.read_text())
    remedy = yield
    assert "the changed TLS files are not used" in remedy.what
    remedy.names("renew it", "sign a new one with your own CA", "without a restart")
    field.certify("renewed", days=300)


@cause("process_paused", "broker-c", is_slow=True)
def a_process_that_was_stopped(field: Field) -> Course:
    os.kill(field.c.pid, signal.SIGSTOP)
    time.sleep(8)
    os.kill(field.c.pid, signal.SIGCONT)
    remedy = yield
    remedy.names("it runs again, and this ends a minute after the last pause")


# Under load the store goes on ahead of the corrected clock for ten minutes (store_time.py).
@cause("clock_wrong", "broker-c", over_s=OVER_S + 600)
def a_clock_an_hour_ahead(field: Field) -> Course:
    yield from _wrong_clock(field, _AHEAD_MS)


@cause("clock_wrong", "broker-c")
def a_clock_an_hour_behind(field: Field) -> Course:
    yield from _wrong_clock(field, -_AHEAD_MS)


def _wrong_clock(field: Field, skew_ms: int) -> Course:
    field.c.skew.set(skew_ms)
    remedy = yield
    remedy.names("set the clocks of the servers by NTP")
    field.c.skew.set(0)


# Clients --------------------------------------------------------------------------------------------------------------


@cause("accounts_not_loaded", "broker-b")
def a_file_of_accounts_with_a_mistake(field: Field) -> Course:
    text = field.accounts.read_text()
    field.accounts.write_text(text + "  - accessKey: [\n")
    remedy = yield
    remedy.names("correct the file that the text names")
    assert str(field.accounts) in remedy.what
    field.accounts.write_text(text)


@cause("audit_not_written", "broker-b")
def an_audit_log_without_a_folder(field: Field) -> Course:
    folder = field.audit.parent
    field.run("broker", "stats", "broker-b")
    until(folder.is_dir, 30, "there is no audit log")
    away = folder.rename(folder.with_name(f"audit.{time.time_ns()}"))
    folder.write_text("")
    field.run("broker", "stats", "broker-b")
    remedy = yield
    remedy.names("see that its folder is there")
    folder.unlink()
    away.rename(folder)


@cause("denials", "broker-b", is_slow=True)
def a_client_without_keys(field: Field) -> Course:
    broker, is_right = Target(OURS, field.namesrv, field.b.address), threading.Event()

    def ask() -> None:
        while not is_right.wait(0.5):
            assert broker.ask(17, topic_fields("Wanted")).code != 0

    client = threading.Thread(target=ask)
    client.start()
    try:
        remedy = yield
        remedy.names("find the client by its address", "the right keys")
        assert "which sends no access key" in remedy.what
        assert "requests are denied again and again" in remedy.what
    finally:
        is_right.set()
        client.join()


@cause("quota_used_up", "broker-c")
def a_quota_that_is_too_small(field: Field) -> Course:
    name = "OfC"
    field.create(name, field.c)
    field.run("broker", "set", "broker-c", f"quotas=topic:{name} requests=1/s")
    with sending(field, name):
        remedy = yield
        assert f"topic {name} has requests=1/s" in remedy.what
        field.follow(remedy, "quotas=", RULES=f"topic:{name} requests=1000/s")
    field.run("broker", "set", "broker-c", "quotas=")


@cause("connections_full", "broker-c", is_slow=True)
def a_client_that_opens_connections_without_end(field: Field) -> Course:
    host, port = field.c.address.split(":")
    with ExitStack() as stack:
        for _ in range(FILES):
            with suppress(OSError):
                stack.enter_context(socket.create_connection((host, int(port)), timeout=5))
        remedy = yield
        remedy.names("stop clients that open many connections")


@cause("transactions_open", "broker-c", is_slow=True)
def a_producer_that_died_within_a_transaction(field: Field) -> Course:
    field.create("Payments", field.c)
    program(_TRANSACTION, field.namesrv, "begin").wait(60)
    remedy = yield
    remedy.names("start the producers of that group")
    producer = program(_TRANSACTION, field.namesrv, "answer")
    try:
        until(lambda: "transactions_open" not in field.c.conditions, 60, "the producer does not end it")
    finally:
        producer.kill()
        producer.wait()
