"""A broker finds the other brokers of its name by its name servers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sparrowmq.broker.replication.ha_master import slave_of
from sparrowmq.broker.replication.peer_repair import same_log_addresses
from tests.broker.replication.pairs import pair
from tests.interop.apache import free_ports


async def test_the_others_of_the_same_name_and_cluster_are_found_at_the_first_name_server_that_answers(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as both:
        master, slave = (await both.start("master")).address, (await both.start("slave")).address
        settings, away = both.master_settings, f"127.0.0.1:{free_ports(1)[0]}"
        assert await same_log_addresses(settings, master, both.pool) == [slave]
        assert await same_log_addresses(both.slave_settings, slave, both.pool) == [master]
        two = replace(settings, namesrv=(away, *settings.namesrv))
        assert await same_log_addresses(two, master, both.pool) == [slave]
        assert await same_log_addresses(replace(settings, namesrv=(away,)), master, both.pool) == []
        assert await same_log_addresses(replace(settings, cluster="another"), master, both.pool) == []
        assert await same_log_addresses(replace(settings, name="another"), master, both.pool) == []


@pytest.mark.parametrize(
    ("host", "member", "expected"),
    [
        ("10.0.0.2", None, (1, "10.0.0.2:10911")),
        ("::1", None, (2, "[::1]:10911")),
        ("10.0.0.3", None, None),
        ("10.0.0.4", None, None),
        ("10.0.0.9", 3, (3, "10.0.0.4:10911")),
    ],
)
def test_a_slave_is_known_by_its_number_or_by_a_host_that_no_other_slave_has(
    host: str, member: int | None, expected: tuple[int, str] | None
) -> None:
    known = {1: "10.0.0.2:10911", 2: "[::1]:10911", 3: "10.0.0.4:10911", 4: "10.0.0.4:10921"}
    assert slave_of(host, member, known) == expected
