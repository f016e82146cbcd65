"""What goes wrong with a group that elects its master, and the remedies, as in causes.py."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Final

from tests.conditions.cause import Course, cause, program
from tests.conditions.field import ADMIN, OVER_S, Field, FieldBroker, until

_LARGE: Final = """
import asyncio, os, sys
from sparrowmq import Credentials, connect
async def main():
    async with connect(sys.argv[1], credentials=Credentials(sys.argv[3], sys.argv[4])) as mq:
        sends = [mq.send(sys.argv[2], b"a large body" + os.urandom(1 << 20)) for _ in range(30)]
        await asyncio.gather(*sends, return_exceptions=True)
asyncio.run(main())
"""


@cause("forked_messages", "group-e", is_slow=True, needs="etcd")
def a_master_that_died_with_messages_of_its_own(field: Field) -> Course:
    first, second = _led_by_first(field)
    field.create("Forked", first)
    os.kill(second.pid, signal.SIGSTOP)
    producer = program(_LARGE, field.namesrv, "Forked", *ADMIN)
    try:  # more than the connection to the slave takes
        until(lambda: _count_in_log(first, b"a large body") > 25, 60, "the log of the master lacks messages")
    finally:
        producer.kill()
        producer.wait()
    first.kill()
    os.kill(second.pid, signal.SIGCONT)
    _leads(field, second)
    first.start_again()
    remedy = yield
    (file,) = (first.store / "set-aside").glob("*.forked")
    assert file.name in remedy.what
    until(lambda: _in_sync(field), OVER_S, lambda: f"not in sync: {_group(field)}")
    count = _count_of_forked(field)
    shown = json.loads(field.run("store", "resend", str(file), "--dry-run", "-o", "json"))
    assert shown["would_send"] > 0
    assert f"sent {shown['would_send']} messages again" in field.follow(remedy, "store resend")
    assert _count_of_forked(field) == count + shown["would_send"] and not file.exists()


@cause("no_master", "group-e", is_slow=True, needs="etcd")
def a_member_that_lacks_what_the_dead_master_has(field: Field) -> Course:
    first, second = _led_by_first(field)
    first.kill()
    _leads(field, second)
    field.create(f"T{time.time_ns()}", second)
    second.kill()
    first.start_again()
    remedy = yield
    remedy.names(
        "start the members that the text names as in sync",
        "`sparrowmq cluster` shows what each",
    )
    assert f"(in sync: 2 at {field.more['member-e'].address})" in field.run("cluster", may_fail=True)
    second.start_again()


def _count_of_forked(field: Field) -> int:
    rows = json.loads(field.run("topic", "show", "Forked", "-o", "json"))["queues"]
    return sum(each["max_offset"] - each["min_offset"] for each in rows)


def _count_in_log(broker: FieldBroker, text: bytes) -> int:
    return sum(file.read_bytes().count(text) for file in (broker.store / "commitlog").iterdir())


def _led_by_first(field: Field) -> tuple[FieldBroker, FieldBroker]:
    """Return the members of the group; the first leads, and the other is in sync."""
    first, second = field.start_group()
    until(lambda: len(_group(field)) == 2 and _in_sync(field), OVER_S, lambda: f"not in sync: {_group(field)}")
    if _master(field) != first.address:
        field.run("cluster", "transfer", "--broker", "group-e", "--to", "1")
    _leads(field, first)
    until(lambda: _in_sync(field), OVER_S, lambda: f"not in sync: {_group(field)}")
    return first, second


def _leads(field: Field, member: FieldBroker) -> None:
    until(lambda: _master(field) == member.address, OVER_S, lambda: f"does not lead: {_group(field)}")


def _master(field: Field) -> str:
    return next((str(each["address"]) for each in _group(field) if each["role"] == "master"), "")


def _in_sync(field: Field) -> bool:
    return any(len(str(each["in_sync"] or "").split(",")) == 2 for each in _group(field))


def _group(field: Field) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(field.run("cluster", "show", "-o", "json", may_fail=True))
    return [each for each in rows if each["broker"] == "group-e"]
