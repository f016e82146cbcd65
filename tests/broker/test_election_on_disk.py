"""An epoch begins at an offset up to which the new master has its log on disk, so that a power cut cannot lose it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from sparrowmq.broker.member import Member
from sparrowmq.store import vfs
from tests.broker.members import Members
from tests.interop.etcd import LiveEtcd, needs_etcd
from tests.store.stores import put

pytestmark = needs_etcd

LOOKS = 30


async def test_a_member_is_elected_once_its_log_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, began = threading.Event(), threading.Event()
    sync_data = vfs._sync_data

    def slow(descriptor: int) -> None:
        began.set()
        disk.wait(5)
        sync_data(descriptor)

    with LiveEtcd() as etcd:
        members = Members(tmp_path, etcd, "broker-a")
        async with Member(members.settings(1)) as member:
            assert member.broker is not None
            put(member.broker.store)  # which creates the first file of the log
            monkeypatch.setattr(vfs, "_sync_data", slow)
            end = put(member.broker.store).end
            candidate = asyncio.create_task(member._campaign(member.broker))
            await asyncio.to_thread(began.wait, 20)
            try:
                for _ in range(LOOKS):
                    found = await members.ask.below(member._keys)
                    assert member._keys + "leader" not in found, "elected before its log is on disk"
                assert member.broker.store.flushed.value < end
            finally:
                disk.set()
            await candidate
            assert member.leads and member._etcd_group.state is not None
            assert member._etcd_group.state.begins[-1] == (member._etcd_group.state.epoch, end)
        members.pool.close()
