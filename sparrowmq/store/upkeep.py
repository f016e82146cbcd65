"""The regular work of a store while a broker runs: sync, index keys, make checkpoints, delete old messages.

    every flush interval    sync the log
    every 0.1 s             index keys; create the next log file; retry writes that a full disk refused
    every 5 s               make a checkpoint; sooner when the log has grown by 32 MiB, which a start would read again;
                            at once after a topic was deleted, or a crash would bring its queues back
    scrubRate MiB a second  check the log for bit rot (scrub.py)
    every second            add keys to the index for which the disk had no room before
    every 10 s              retention; at once on request, and every second while the disk is too full

All decisions are made on the loop that owns the store. Only work on files goes to a thread. A store that failed is not
changed: its messages can be read, and nothing is deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sparrowmq.errors import BadStore, DiskFull, OutOfResources, StoreFailed
from sparrowmq.loop.turn import Turn
from sparrowmq.store.log.scrub import ROUND_S, STEP_BYTES
from sparrowmq.store.store_settings import MAX_FLUSH_INTERVAL_MS

if TYPE_CHECKING:
    from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_TEND_PERIOD_S: Final = 0.1
_RETENTION_PERIOD_S: Final = 10.0
_FULL_PERIOD_S: Final = 1.0  # while the disk is too full: freed space is noticed soon


async def run(store: MessageStore, turn: Turn) -> None:
    """Work until cancelled. Raises: StoreFailed, a file of the log was cut, so that even reading is not safe."""
    store.appender.turn = turn  # from now on the turn ends the bursts of requests, and a thread syncs
    store.flusher.start(asyncio.get_running_loop())
    with ThreadPoolExecutor(1, "sparrowmq-store") as executor:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_flush_regularly(store))
                tasks.create_task(_tend(store, executor))
                tasks.create_task(_checkpoint_regularly(store, executor))
                tasks.create_task(_delete_regularly(store))
                tasks.create_task(_scrub(store))
                tasks.create_task(_fill_index(store))
        finally:
            store.appender.turn = None
            store.flusher.stop()  # the thread finishes its work first


async def _flush_regularly(store: MessageStore) -> None:
    while True:
        await store.clock.sleep(min(store.settings.flush_interval_ms, MAX_FLUSH_INTERVAL_MS) / 1000)
        store.flusher.kick()


async def _tend(store: MessageStore, executor: ThreadPoolExecutor) -> None:
    while True:
        await store.clock.sleep(_TEND_PERIOD_S)
        store.tend(executor)


async def _checkpoint_regularly(store: MessageStore, executor: ThreadPoolExecutor) -> None:
    while store.flushed.error is None:
        with suppress(TimeoutError):
            await store.clock.wait_for(store.wants_checkpoint.wait(), store.settings.checkpoint_interval_ms / 1000)
        store.wants_checkpoint.clear()
        try:
            end, now_ms = store.prepare_checkpoint()
            store.flusher.kick()
            await store.flushed.reached(end)
            await _write(store.begin_checkpoint(end, now_ms), executor)
        except DiskFull as full:
            log.warning("no checkpoint: %s", full)
            store.appender.close_idle_files(full)
        except StoreFailed:
            return
        except OSError as error:
            store.flusher.fail(error)


async def _write(checkpoint: Callable[[], None], executor: ThreadPoolExecutor) -> None:
    """Write a checkpoint, even when cancelled: nothing else remembers any more which parts of files it has to sync."""
    written = asyncio.get_running_loop().run_in_executor(executor, checkpoint)
    try:
        await asyncio.shield(written)
    except asyncio.CancelledError:
        with suppress(DiskFull):
            await written
        raise


async def _scrub(store: MessageStore) -> None:
    """Check the log for bit rot, at the rate of the current settings. A round takes at least an hour."""
    began_s = store.clock.monotonic()
    while True:
        rate = store.settings.scrub_mib_s
        pause_s = STEP_BYTES / (rate << 20) if rate else _RETENTION_PERIOD_S
        if rate and not store.scrubber.step():
            pause_s = max(began_s + ROUND_S - store.clock.monotonic(), pause_s)
            began_s = store.clock.monotonic() + pause_s
        await store.clock.sleep(pause_s)


async def _fill_index(store: MessageStore) -> None:
    while True:
        await store.clock.sleep(0 if store.fill_index() else _FULL_PERIOD_S)


async def _delete_regularly(store: MessageStore) -> None:
    retention = store.retention
    while True:
        period_s = _RETENTION_PERIOD_S if retention.full_error is None else _FULL_PERIOD_S
        with suppress(TimeoutError):
            await store.clock.wait_for(retention.is_requested.wait(), period_s)
        cleaning = retention.take_request()
        if store.flushed.error is not None:
            return
        try:
            for _ in retention.run(store.retention_time.read(), cleaning):
                await asyncio.sleep(0)  # the loop can do other work between two queues
        except OutOfResources as short:
            log.warning("not all old messages were deleted: %s", short)
            store.appender.close_idle_files(short)
        except BadStore as bad:
            log.error("not all old messages were deleted: %s", bad)
        if retention.full_error is not None:
            # A little longer than the time to the next check of the disk, which decides again.
            store.appender.stall(retention.full_error, _FULL_PERIOD_S + 0.5)
