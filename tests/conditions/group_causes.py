"""What goes wrong with a group that elects its master, and the remedies, as in causes.py."""

from __future__ import annotations

import json
import time

from tests.conditions.cause import Course, cause
from tests.conditions.field import OVER_S, Field, FieldBroker, until


@cause("no_master", "group-e", is_slow=True, needs="etcd")
def a_member_that_lacks_what_the_dead_master_has(field: Field) -> Course:
    first, second = _led_by_first(field)
    first.kill()
    _leads(field, second)
    field.create(f"T{time.time_ns()}", second)
    second.kill()
    first.start_again()
    remedy = yield
    remedy.names("`sparrowmq cluster` shows what each member waits for")
    assert "(in sync: 2)" in field.run("cluster", may_fail=True)
    second.start_again()


def _led_by_first(field: Field) -> tuple[FieldBroker, FieldBroker]:
    """Return the members of the group; the first leads, and the other is in sync."""
    first, second = field.start_group()
    until(
        lambda: len(_group(field)) == 2 and _in_sync(field), OVER_S, lambda: f"not in sync: {_group(field)}"
    )
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
