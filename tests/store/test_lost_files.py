"""Files of a store that are missing though nothing deleted them."""

from dataclasses import replace
from pathlib import Path

import pytest

from sparrowmq.errors import BadStore, CorruptRecord
from sparrowmq.store.checkpoint import FILE_SIZE
from sparrowmq.store.layout import offset_name
from tests.store.stores import Stores, bodies, put
from tests.store.test_recovery import QUARANTINE, fill, flip, log_file, snapshot


@pytest.mark.parametrize("killed", [False, True])
def test_a_missing_oldest_log_file_is_named_and_a_quarantine_goes_on_without_it(stores: Stores, killed: bool):
    store = stores.open()
    texts = [b"long text %d " % number * 150 for number in range(6)]
    fill(store, texts)
    store.checkpoint()
    stores.crash(store) if killed else store.close()
    log_file(store, 0).unlink()
    before = snapshot(Path(store.settings.path))
    with pytest.raises(BadStore, match=f"{offset_name(0)} is missing.*corruptPolicy=quarantine"):
        stores.open()
    assert snapshot(Path(store.settings.path)) == before
    store = stores.open(corrupt_policy=QUARANTINE)
    assert bodies(store) == texts[2:] and put(store)[1] == len(texts)
    store.close()
    assert bodies(stores.open())[:-1] == texts[2:]


def test_files_that_retention_deleted_are_not_missed(stores: Stores):
    store = stores.open()
    texts = [b"long text %d " % number * 150 for number in range(6)]
    fill(store, texts)
    store.checkpoint()
    retention = store.retention
    store.settings = replace(store.settings, disk_force_ratio=0.0)
    list(retention.run(0))
    assert store.begin > 0
    stores.crash(store)
    assert bodies(stores.open()) == texts[4:]


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("damaged", [2, 4])
@pytest.mark.parametrize("garbage", [None, b"", b"\x7a\x11" * (FILE_SIZE // 2)], ids=["missing", "empty", "garbage"])
def test_without_its_checkpoint_a_store_still_tells_damage_from_a_torn_tail(
    stores: Stores, garbage: bytes | None, killed: bool, damaged: int
):
    store = stores.open()
    offsets = fill(store)
    store.checkpoint()
    stores.crash(store) if killed else store.close()
    checkpoint = Path(store.settings.layout.checkpoint)
    checkpoint.unlink() if garbage is None else checkpoint.write_bytes(garbage)
    flip(log_file(store), offsets[damaged] + 90)
    with pytest.raises(CorruptRecord, match="corruptPolicy=quarantine") as refused:
        stores.open()
    assert refused.value.offset == offsets[damaged]
    stores.leave_damaged()
