"""What is wrong with a store shows at /readyz, in metrics, in brokerStatus and in the doctor's findings."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.findings import Verdict
from sparrowmq.broker import store as broker_store
from sparrowmq.broker.store import HANGS_S, store_probes
from sparrowmq.errors import DiskFull, RemoteError, StoreFailed
from sparrowmq.loop.clock import SystemClock
from sparrowmq.metrics.condition_kinds import DISK_HANGS, STORE_FAILED
from sparrowmq.metrics.server_figures import DiskUse
from sparrowmq.remoting.pool import Pool
from sparrowmq.store import vfs
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import Flush
from sparrowmq.testing import Cluster
from sparrowmq.testing.clock import ManualClock
from tests.broker.live import send_request
from tests.broker.metrics.visits import ON, visit
from tests.broker.told import shows
from tests.store.conftest import stores as stores
from tests.store.stores import Stores, put


def said(store: MessageStore, clock: ManualClock) -> dict[str, str]:
    return {kind.name: what for kind, probe in store_probes(store, clock) if (what := probe())}


def test_a_sound_store_has_no_condition(stores: Stores) -> None:
    assert said(stores.open(), ManualClock()) == {}


@pytest.mark.parametrize("is_same", [True, False])
def test_an_incomplete_index_follows_from_the_disk_that_it_is_on(stores: Stores, is_same: bool) -> None:
    store = stores.open()
    index = Path(store.settings.layout.index)
    if not is_same:
        index.rename(index.with_name("moved"))
        index.symlink_to("/proc")  # a file system of its own
    kinds = {kind.name: kind for kind, _ in store_probes(store, ManualClock())}
    assert kinds["index_incomplete"].follows == (("disk_full",) if is_same else ("disk_nearly_full",))


def test_a_full_disk_shows_until_there_is_room(stores: Stores) -> None:
    store = stores.open()
    store.appender.full_error = DiskFull("/store", 100)
    assert list(said(store, ManualClock())) == ["disk_full"]
    store.appender.full_error = None
    assert said(store, ManualClock()) == {}


def test_a_nearly_full_disk_shows_before_no_message_is_taken(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    store, used = stores.open(), [0.84]
    monkeypatch.setattr(broker_store, "disk_use", lambda _: DiskUse(used[0], 0, 0))
    assert said(store, ManualClock()) == {}
    used[0] = 0.86
    text = said(store, ManualClock())["disk_nearly_full"]
    assert text.startswith("86% of the disk of ") and "from 90% on no message is taken; the log has 0 of 0 MiB" in text
    store.settings = replace(store.settings, disk_full_ratio=0.95)
    assert said(store, ManualClock()) == {}
    used[0] = 0.94
    assert list(said(store, ManualClock())) == ["disk_nearly_full"]
    store.appender.full_error = DiskFull("/store", 100)
    assert list(said(store, ManualClock())) == ["disk_full"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("consume_queue", "when it is full, no message is taken"),
        ("index", "messages are taken, but new ones are not found by their keys"),
        ("timers", "its files cannot be written"),
    ],
)
def test_a_nearly_full_disk_of_another_folder_shows_and_its_consequence(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    store = stores.open()
    folder = getattr(store.settings.layout, name)
    monkeypatch.setattr(broker_store, "disk_use", lambda path: DiskUse(0.99 if path == folder else 0.1, 0, 0))
    text = said(store, ManualClock())["disk_nearly_full"]
    assert text.startswith(f"99% of the disk of {folder} is used") and words in text and "from 90%" not in text


def test_one_disk_for_all_folders_is_named_by_that_of_the_log(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stores.open()
    monkeypatch.setattr(broker_store, "disk_use", lambda _: DiskUse(0.99, 0, 0))
    assert store.settings.layout.commit_log in said(store, ManualClock())["disk_nearly_full"]


def test_a_full_disk_of_the_index_says_so_and_how_much_of_it_the_index_has(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open()
    index = Path(store.settings.layout.index)
    (index / "1").write_bytes(bytes(1 << 20))
    used = {str(index): 0.97}
    monkeypatch.setattr(broker_store, "disk_use", lambda at: DiskUse(used.get(str(at), 0.5), 0, 4 << 20))
    text = said(store, ManualClock())["disk_nearly_full"]
    assert "; when it is full, messages are taken, but" in text
    assert text.endswith("; the files there have 1.0 of 4.0 MiB")
    used[str(index)] = 1.0
    assert "; so messages are taken, but" in said(store, ManualClock())["disk_nearly_full"]


def hangs_of(store: MessageStore, clock: ManualClock) -> Callable[[], str]:
    return dict(store_probes(store, clock))[DISK_HANGS]


async def test_a_disk_that_hangs_shows_after_a_while(stores: Stores) -> None:
    clock = ManualClock()
    store = stores.open(clock=clock)
    put(store)
    hangs = hangs_of(store, clock)
    assert not hangs()
    await clock.advance(HANGS_S + 1)
    assert hangs().endswith(f" to the disk of {store.settings.layout.commit_log}")
    store.flush()
    assert not hangs()


async def test_the_old_messages_that_a_slave_catches_up_on_are_no_disk_that_hangs(stores: Stores) -> None:
    store = stores.open(clock=ManualClock())
    clock = ManualClock()
    await clock.advance(3600)
    hangs = hangs_of(store, clock)
    for _ in range(3 * int(HANGS_S)):
        put(store)
        store.flush()
        put(store)  # there is always one that waits, and is an hour old
        assert not hangs()
        await clock.advance(1)


def test_damage_and_what_was_fenced_off_or_forked_show(stores: Stores) -> None:
    store = stores.open()
    store.scrubber.damaged[400], store.scrubber.fenced[200], store.scrubber.fenced[600] = 460, 300, 700
    folder = Path(store.settings.layout.set_aside)
    folder.mkdir()
    (folder / f"{0:020d}-{60:020d}.forked").write_bytes(b"x")
    (folder / f"{60:020d}-{90:020d}.lost").write_bytes(b"x" * 30)
    fenced = folder / f"{200:020d}-{300:020d}.damaged"
    fenced.write_bytes(b"x" * 100)
    found = said(store, ManualClock())
    assert list(found) == ["log_damaged", "log_fenced", "log_cut", "forked_messages"]
    assert "found 30 damaged bytes at the end of the log" in found["log_cut"]
    assert found["log_damaged"].startswith("60 bytes of the log are damaged, the first at offset 400")
    assert found["forked_messages"].endswith(f"{0:020d}-{60:020d}.forked")
    assert found["log_fenced"].startswith("100 bytes") and found["log_fenced"].endswith(str(fenced))
    fenced.unlink()
    assert "log_fenced" not in said(store, ManualClock()), "who deletes the file has seen it"
    store.scrubber.damaged.clear()
    store.scrubber.fenced.clear()


async def test_a_failed_sync_shows_everywhere_and_reads_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    with pytest.raises(StoreFailed):
        await _fail_a_sync(tmp_path, monkeypatch, seen)
    assert seen == ["all"], "the error at the end hides others"


async def _fail_a_sync(path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[str]) -> None:
    async with Cluster(path, **ON, flush=Flush.SYNC) as cluster:
        broker = cluster.brokers[0]
        await shows(broker)
        assert await visit(broker.metrics_address, "/readyz") == (200, "ok\n")

        def fail(_: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(vfs, "_sync_data", fail)
        pool = Pool(SystemClock())
        session = await pool.session(broker.address)
        with pytest.raises(RemoteError):
            await session.call(send_request("orders"), b"lost", timeout_s=5)
        await shows(broker, "store_failed")
        status, text = await visit(broker.metrics_address, "/readyz")
        assert status == 503 and text.startswith("store_failed: ")
        assert f"Its messages are in {broker.store.settings.layout.commit_log}" in text
        _, metrics = await visit(broker.metrics_address, "/metrics")
        assert 'condition="store_failed"' in metrics and 'severity="critical"' in metrics
        async with Admin(cluster.namesrv) as admin:
            wrong = [each for each in await admin.examine() if each.verdict is Verdict.WRONG]
        remedy = STORE_FAILED.remedy.replace("STORE", broker.store.settings.layout.root)
        assert any("store_failed" in each.what and each.mend == remedy for each in wrong)
        pool.close()
        seen.append("all")
