"""docs/operate/failover.md and docs/operate/replication.md: their settings are accepted, and their columns exist."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from sparrowmq.broker.broker_settings import BrokerRole, BrokerSettings
from sparrowmq.broker.member import check_member_settings
from sparrowmq.broker.replication.ha_master import check_role
from sparrowmq.cli.cluster import _HEADS as HEADS
from sparrowmq.settings.settings import build
from sparrowmq.settings.settings_files import parse_properties

PAGES = Path(__file__).parents[1] / "docs" / "operate"
FAILOVER = (PAGES / "failover.md").read_text()
REPLICATION = (PAGES / "replication.md").read_text()


def property_boxes(page: str) -> list[dict[str, str]]:
    boxes = re.findall(r"^ *```properties\n(.*?)^ *```", page, re.DOTALL | re.MULTILINE)
    return [parse_properties(textwrap.dedent(box)) for box in boxes]


def settings_of(box: dict[str, str], page: str) -> BrokerSettings:
    settings, report = build(BrokerSettings, box, page)
    assert not report.unknown
    return settings


def test_settings_of_a_member_are_accepted_with_and_without_a_protected_etcd() -> None:
    member, protection = property_boxes(FAILOVER)
    check_member_settings(settings_of(member, "failover.md"))
    protected = settings_of(member | protection, "failover.md")
    check_member_settings(protected)
    assert protected.etcd_tls and protected.etcd_user


def test_settings_of_a_master_and_a_slave_are_accepted() -> None:
    master, slave = (settings_of(box, "replication.md") for box in property_boxes(REPLICATION))
    check_role(master)
    check_role(slave)
    assert (master.role, slave.role) == (BrokerRole.SYNC_MASTER, BrokerRole.SLAVE)
    assert master.name == slave.name


@pytest.mark.parametrize("key", ["masterLeaseTime", "haMaxTimeSlaveNotCatchup", "slaveTimeout"])
def test_default_times_of_the_failover_page_are_those_of_the_broker(key: str) -> None:
    settings = BrokerSettings()
    times_s = {
        "masterLeaseTime": settings.lease_s,
        "haMaxTimeSlaveNotCatchup": settings.catch_up_ms // 1000,
        "slaveTimeout": settings.slave_timeout_ms / 1000,
    }
    assert re.search(rf"`{key}`[^`]*?\b{times_s[key]} s\b", FAILOVER)


def test_the_example_of_sparrowmq_cluster_has_columns_of_the_command() -> None:
    example = re.search(r"^CLUSTER .*\.\.\.$", FAILOVER, re.MULTILINE)
    assert example is not None
    shown = re.split(r"\s{2,}", example[0].replace("BROKER    ID", "BROKER  ID"))[:-1]
    assert set(shown) <= set(HEADS)
    described = FAILOVER.partition("| Column | Meaning |")[2].partition("\n\n")[0]
    named = re.findall(r"`([A-Z ]+)`", "\n".join(line.split("|")[1] for line in described.splitlines()[2:]))
    assert named and set(named) <= set(HEADS)
