"""Each state in which a broker does less than people expect shows at /readyz, in brokerStatus and in metrics."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.admin.findings import reported_conditions
from sparrowmq.broker.broker import reduced_service
from sparrowmq.broker.broker_settings import BrokerRole, BrokerSettings
from sparrowmq.broker.saved_state import SavedFile
from sparrowmq.core import snapshot
from sparrowmq.metrics.condition_kinds import (
    DISK_FULL,
    DRAINED,
    INDEX_INCOMPLETE,
    LOG_FENCED,
    STATE_NOT_SAVED,
    TRANSACTIONS_OPEN,
)
from sparrowmq.metrics.conditions import Conditions, NotReady
from sparrowmq.metrics.figures import Figures
from sparrowmq.testing import Cluster
from sparrowmq.testing.clock import ManualClock
from tests.broker.replication.pairs import pair
from tests.broker.told import shows


def watched() -> tuple[Conditions, dict[str, str], ManualClock, Figures]:
    clock, figures, said = ManualClock(), Figures(), dict.fromkeys(("disk_full", "drained"), "")
    conditions = Conditions(clock, figures)
    conditions.watch([(DISK_FULL, lambda: said["disk_full"]), (DRAINED, lambda: said["drained"])])
    return conditions, said, clock, figures


async def test_a_condition_lasts_from_when_it_was_seen_until_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "sparrowmq")
    conditions, said, clock, figures = watched()
    assert conditions.current() == [] and await conditions.ready() == "ok\n"
    begun, said["drained"] = clock.monotonic(), "it takes no messages"
    conditions.poll()
    await clock.advance(60)
    said["disk_full"] = "no room"
    first, second = conditions.current()
    assert (first.kind, second.kind, second.since_s) == (DISK_FULL, DRAINED, begun)
    rows = figures.values("sparrowmq_condition")
    assert rows == {("disk_full", "critical"): 1, ("drained", "warning"): 1}
    assert figures.value("sparrowmq_ready") == 0
    with pytest.raises(NotReady, match=r"^disk_full: no room; drained: it takes no messages$"):
        await conditions.ready()
    said["disk_full"] = ""
    assert await conditions.ready() == "ok\ndrained: it takes no messages\n"
    assert figures.value("sparrowmq_ready") == 1
    assert "drained: it takes no messages. What to do: " in caplog.text and "disk_full is over" in caplog.text


def test_a_condition_names_the_other_one_from_which_it_follows() -> None:
    said = {"disk_full": "no room"}
    conditions = Conditions(ManualClock(), Figures())
    conditions.watch([(DISK_FULL, lambda: said["disk_full"]), (INDEX_INCOMPLETE, lambda: "it lacks keys")])
    told = reported_conditions(conditions.as_properties())
    assert (told["index_incomplete"].cause, told["disk_full"].cause) == ("disk_full", None)
    said["disk_full"] = ""
    assert reported_conditions(conditions.as_properties())["index_incomplete"].cause is None


def test_open_transactions_follow_from_a_disk_that_takes_no_questions_about_them() -> None:
    conditions = Conditions(ManualClock(), Figures())
    conditions.watch([(DISK_FULL, lambda: "no room"), (TRANSACTIONS_OPEN, lambda: "12 transactions are open")])
    assert reported_conditions(conditions.as_properties())["transactions_open"].cause == "disk_full"


def test_commands_in_remedies_have_the_names_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    names = {"NAME": "broker-b", "ADDRESS": "10.0.0.1:10911", "CONF": ""}
    conditions = Conditions(ManualClock(), Figures(), lambda: names)
    conditions.watch([(DRAINED, lambda: "it takes no messages"), (LOG_FENCED, lambda: "100 bytes")])
    told = conditions.as_properties()
    assert "`sparrowmq broker undrain broker-b`" in told["condition.drained"]
    assert "`sparrowmq broker set 10.0.0.1:10911 brokerPermission=6`" in told["condition.drained"]
    assert "repair STORE -c CONF --from HOST:PORT`" in told["condition.log_fenced"], "what it does not know stays"
    assert "broker undrain broker-b" in caplog.text


async def test_the_time_since_when_it_lasts_is_right_once_the_clock_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    conditions, said, clock, _ = watched()
    right_ms = clock.now_ms()
    said["drained"] = "it takes no messages"
    monkeypatch.setattr(clock, "now_ms", lambda: right_ms + 3_600_000)
    conditions.poll()
    monkeypatch.undo()
    await clock.advance(60)
    assert reported_conditions(conditions.as_properties())["drained"].since_ms == right_ms


def test_a_probe_that_fails_is_told_once_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    conditions, said, _, _ = watched()
    failing = True

    def probe() -> str:
        if failing:
            raise OSError(errno.EACCES, "Permission denied")
        return ""

    conditions.watch([(LOG_FENCED, probe), (DRAINED, lambda: said["drained"])])
    said["drained"] = "it takes no messages"
    assert [each.kind for each in (*conditions.current(), *conditions.current())] == [DRAINED, DRAINED]
    failing = False
    conditions.poll()
    failing = True
    conditions.poll()
    assert caplog.text.count("condition log_fenced cannot be looked for, and stays as it was") == 2


def test_a_new_text_keeps_the_time_since_when_it_lasts() -> None:
    conditions, said, _, _ = watched()
    said["disk_full"] = "90 %"
    before = conditions.current()[0]
    said["disk_full"] = "91 %"
    after = conditions.current()[0]
    assert (after.facts, after.since_s) == ("91 %", before.since_s)


def test_two_files_that_cannot_be_saved_are_one_condition(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "sparrowmq")
    said = {"topics": "topics.json", "groups": "", "offsets": ""}
    conditions = Conditions(ManualClock(), Figures())
    conditions.watch([(STATE_NOT_SAVED, lambda name=name: said[name]) for name in said])  # type: ignore[misc]
    assert [each.facts for each in conditions.current()] == ["topics.json"]
    said["groups"] = "groups.json"
    assert [each.facts for each in conditions.current()] == ["topics.json; groups.json"]
    assert len(caplog.messages) == 1, "one line when the condition begins"
    said |= dict.fromkeys(said, "")
    assert conditions.current() == [] and "state_not_saved is over" in caplog.text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"permission": 7}, ""),
        ({"permission": 4}, "takes no messages"),
        ({"permission": 2}, "gives no messages"),
        ({"permission": 0}, "neither takes nor gives"),
        ({"drained": True}, "producers do not find it"),
        (
            {"drained": True, "permission": 4},
            "brokerPermission = 4; producers do not find it: drained = true",
        ),
    ],
)
def test_a_broker_that_is_set_to_do_less_says_so(changes: dict[str, Any], words: str) -> None:
    said = reduced_service(BrokerSettings(**changes))
    assert words in said and bool(words) == bool(said)


async def test_a_slave_that_is_missing_shows_at_its_master_and_a_missing_master_at_its_slave(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path, role=BrokerRole.SYNC_MASTER) as both:
        master = await both.start("master")
        await shows(master, "no_slave")
        slave = await both.start("slave")
        await shows(master)
        await shows(slave)
        await both.stop("slave")
        await shows(master, "no_slave", "slave_gone")
        slave = await both.start("slave")
        await shows(master)
        await both.stop("master")
        await shows(slave, "master_not_followed")


async def test_a_broker_that_no_name_server_knows_is_not_ready(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        broker = cluster.brokers[0]
        await shows(broker)
        await cluster._namesrv.__aexit__(None, None, None)
        await shows(broker, "unregistered")
        with pytest.raises(NotReady, match="no name server knows this broker"):
            await broker._conditions.ready()


def refused(*_: object, **__: object) -> None:
    raise OSError(errno.EACCES, "Permission denied")


async def test_state_that_cannot_be_saved_shows_until_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SavedFile(tmp_path / "topics.json", dict)
    [(kind, probe)] = file.part("topics", 1).probes
    file.touch()
    with monkeypatch.context() as patch:
        patch.setattr(
            snapshot,
            "save",
            lambda *_, **__: (_ for _ in ()).throw(OSError(errno.EACCES, "Permission denied")),
        )
        with pytest.raises(OSError, match="denied"):
            await file.save()
    assert kind is STATE_NOT_SAVED and probe() == f"{file.path} cannot be written (Permission denied)"
    await file.save()
    assert probe() == ""
