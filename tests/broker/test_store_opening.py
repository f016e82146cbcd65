"""Brokers of a fixed role take damaged records from each other, at a start and while they run."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.broker.broker_settings import BrokerRole
from sparrowmq.errors import CorruptRecord, RemoteError
from sparrowmq.store.store_settings import Flush
from tests.broker.conftest import until
from tests.broker.replication.pairs import Pair, pair
from tests.store.mutated import verifying_little

TEXTS = [b"%d" % number * 40 for number in range(30)]
ROLE: dict[str, Any] = {"role": BrokerRole.SYNC_MASTER, "flush": Flush.SYNC}


async def with_messages(both: Pair) -> None:
    """Both have all of TEXTS."""
    await both.start("master")
    await both.start("slave")
    for number, text in enumerate(TEXTS):
        await both.send(text)
        if number % 5 == 0:  # so that a start need not check the older ones
            both.broker("master").store.checkpoint()
    await both.same()


def flip(path: Path, place: int) -> None:
    """Flip a bit of a file."""
    with path.open("r+b") as file:
        file.seek(place)
        [byte] = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 4]))


def flip_text(both: Pair, who: str, text: bytes) -> None:
    path: Path = getattr(both, f"{who}_settings").store_path / "commitlog" / f"{0:020d}"
    flip(path, path.read_bytes().index(text) + 5)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["master", "slave"])
async def test_a_start_takes_damaged_records_from_the_brokers_of_the_same_name(tmp_path: Path, who: str) -> None:
    async with pair(tmp_path, **ROLE) as both:
        await with_messages(both)
        await both.stop(who)
        before = both.log(who)
        for text in (TEXTS[7], TEXTS[8], TEXTS[29]):
            flip_text(both, who, text)
        await both.start(who)
        assert both.log(who).startswith(before)
        assert await both.bodies(who) == TEXTS
        async with asyncio.timeout(20):
            while True:
                with suppress(RemoteError):  # the slave is not back yet
                    await both.send(b"more")
                    break
                await asyncio.sleep(0.1)
        await both.same()


async def test_damage_that_no_broker_of_the_name_can_repair_ends_the_start(tmp_path: Path) -> None:
    async with pair(tmp_path, **ROLE) as both:
        await with_messages(both)
        await both.stop("slave")
        await both.stop("master")
        flip_text(both, "master", TEXTS[3])
        with pytest.raises(CorruptRecord, match="No other broker can repair it: no other broker is known"):
            await both.start("master")


async def test_a_master_that_runs_takes_damaged_records_from_its_slave(tmp_path: Path) -> None:
    async with pair(tmp_path, **ROLE) as both:
        await with_messages(both)
        before = both.log("master")
        flip_text(both, "master", TEXTS[11])
        store = both.broker("master").store
        store._log.distrust()  # as at a start: these messages are not as new as the process
        with pytest.raises(CorruptRecord):
            store.read("orders", 0, 11, 1)
        await until(lambda: both.log("master") == before and not store.scrubber.damaged, 20)
        assert len(store.read("orders", 0, 11, 1).views) == 1


async def test_a_queue_file_waits_for_the_slave_s_copy_if_there_is_a_slave(tmp_path: Path) -> None:
    """Log and queue are damaged before the part of the log that a start reads."""
    with verifying_little():
        async with pair(tmp_path, **ROLE) as both:
            await with_messages(both)
            await both.stop("master")
            flip_text(both, "master", TEXTS[3])
            queue = both.master_settings.store_path / "consumequeue" / "orders" / "0" / f"{0:020d}"
            flip(queue, 20 * 5 + 3)
            await both.start("master")
            assert await both.bodies("master") == TEXTS


async def test_without_a_slave_a_queue_file_is_built_again_with_a_gap(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with verifying_little():
        async with pair(tmp_path, **ROLE) as both:
            await with_messages(both)
            await both.stop("slave")
            await both.stop("master")
            flip_text(both, "master", TEXTS[3])
            queue = both.master_settings.store_path / "consumequeue" / "orders" / "0" / f"{0:020d}"
            flip(queue, 20 * 5 + 3)
            await asyncio.wait_for(both.start("master"), 20)
            assert await both.bodies("master", offset=4) == TEXTS[4:]
            assert "the log has no record of 1 of them" in caplog.text
