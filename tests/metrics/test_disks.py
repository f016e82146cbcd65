"""The room on a server's disks, by the folders with its files."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from sparrowmq.core import logs
from sparrowmq.core.logs import Form
from sparrowmq.metrics.figures import Figures
from sparrowmq.metrics.server_figures import declare_disks, disk_use, with_logs
from sparrowmq.testing import Cluster
from tests.broker.metrics.visits import ON, samples
from tests.crash.not_here import skipped_without
from tests.crash.small_disk import SmallDisk

NAMES = ("sparrowmq_disk_used_ratio", "sparrowmq_disk_free_bytes", "sparrowmq_disk_size_bytes")


def test_the_numbers_are_those_of_the_system(tmp_path: Path) -> None:
    size, _, free = shutil.disk_usage(tmp_path)
    use = disk_use(tmp_path)
    assert use.size_bytes == size and use.free_bytes == pytest.approx(free, rel=0.05)
    assert 0 <= use.used <= 1


def test_a_full_disk_is_full(tmp_path: Path) -> None:
    with skipped_without("a loop device"):
        disk = SmallDisk(tmp_path, 1 << 20)
    with disk:
        assert disk_use(disk.folder).used < 0.1
        disk.fill()
        assert disk_use(disk.folder) == (1.0, 0, 1 << 20)


def test_a_folder_that_does_not_exist_has_no_series(tmp_path: Path) -> None:
    figures = Figures()
    declare_disks(figures, {"commitlog": tmp_path, "index": tmp_path / "none"})
    for name in NAMES:
        assert figures.values(name).keys() == {("commitlog", str(tmp_path))}, name


def test_the_folder_of_the_log_file_is_one_of_them(tmp_path: Path) -> None:
    handler = logs.handler(str(tmp_path / "logs.txt"), Form.TEXT, None, 5)
    logging.getLogger().addHandler(handler)
    try:
        assert with_logs({"kv": "/x"}) == {"kv": "/x", "log": tmp_path}
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()


async def test_brokers_and_name_servers_show_the_disks_of_their_folders(tmp_path: Path) -> None:
    async with Cluster(tmp_path, commit_log_path=tmp_path / "elsewhere", namesrv_settings=ON, **ON) as cluster:
        of_broker = await samples(cluster.brokers[0].metrics_address, "files", "folder")
        of_namesrv = await samples(cluster._namesrv.metrics_address, "files")
    for name in NAMES:
        assert ("commitlog", str(tmp_path / "elsewhere")) in of_broker[name], name
        assert {"consumequeue", "index", "config"} <= {files for files, _ in of_broker[name]}, name
        assert ("kv",) in of_namesrv[name], name
