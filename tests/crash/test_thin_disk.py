"""A disk whose volume is full keeps what was acknowledged after the restart, also once the cache has lost it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from sparrowmq.errors import StoreFailed
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import Flush, StoreSettings
from tests.crash.loop_disk import LoopDisk
from tests.crash.not_here import skipped_without
from tests.crash.small_disk import fill
from tests.store.stores import HOST, bodies, let_go, put


@pytest.mark.timeout(120)
def test_records_that_a_start_has_written_again_stay_when_the_cache_has_lost_them(tmp_path: Path) -> None:
    with skipped_without("a loop device"):
        below = LoopDisk(tmp_path / "below", "ext4")
    with below, LoopDisk(tmp_path, "ext4", below.folder / "image", "-O", "^has_journal") as thin:
        settings = StoreSettings(tmp_path / "store", store_host=HOST, flush=Flush.SYNC)
        settings = replace(settings, commit_log_path=thin.folder / "log", commit_log_file_size=4 << 20)
        store = MessageStore.open(settings)
        written: list[bytes] = []

        def send(body: bytes) -> None:
            put(store, body)
            store.flush()
            written.append(body)

        for number in range(100):
            send(b"%d" % number + b"x" * 200)
        store.close()  # the next start begins where this one ends, within a page
        store = MessageStore.open(settings)
        ballast = below.folder / "ballast"
        fill(ballast)
        with pytest.raises(StoreFailed):
            for number in range(100):
                send(b"full %d" % number + b"x" * 200)
        let_go(store)
        ballast.unlink()
        os.sync()  # so that the blocks of the deleted file are free
        store = MessageStore.open(settings)
        there = bodies(store)
        assert there[: len(written)] == written
        written = there
        for number in range(5):
            send(b"again %d" % number + b"x" * 200)
        let_go(store)
        for file in (thin.folder / "log").iterdir():
            with file.open("rb") as log:
                os.posix_fadvise(log.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        store = MessageStore.open(settings)
        assert bodies(store) == written
        store.close()
