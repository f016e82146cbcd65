"""Settings that must be the same at a slave and its master are compared when the slave starts to follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparrowmq.broker.replication.state_mirror import file_size, size_problem
from sparrowmq.protocol.requests.admin_headers import GetBrokerRuntime
from sparrowmq.protocol.requests.bodies import KVTable
from tests.broker.conftest import until
from tests.broker.replication.pairs import pair


@pytest.mark.parametrize("names", ["mappedFileSizeCommitLog", "mapedFileSizeCommitLog"])
def test_the_size_is_found_by_its_names_in_all_versions(names: str) -> None:
    assert file_size({names: "1048576"}) == 1 << 20
    assert file_size({}) == file_size({names: "one GiB"}) == 0


def test_both_sizes_and_the_remedy_are_named() -> None:
    assert size_problem(5, 5, "h:1") == ""
    assert size_problem(5, 6, "h:1").startswith(
        "mappedFileSizeCommitLog = 5 here, and 6 at the master at h:1: both need the same. "
        "Set mappedFileSizeCommitLog=6 here, move the store"
    )


async def test_a_slave_with_files_of_another_size_says_so_before_the_first_file_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path) as both:
        await both.start("master")
        await both.send(b"one")
        slave = await both.start("slave", commit_log_file_bytes=2 << 20)
        await until(lambda: "the master is not followed" in caplog.text)
        assert "mappedFileSizeCommitLog = 2097152 here, and 1048576 at the master" in caplog.text
        runtime = await (await both.session("slave")).call(GetBrokerRuntime())
        problem = KVTable.decode(runtime.body).table["replicationProblem"]
        assert "mappedFileSizeCommitLog = 2097152" in problem
        replica = slave._role._slave
        assert replica is not None and not replica.is_following
        assert caplog.text.count("is not followed") == 1
