"""Programs with an outbox and an inbox that are killed by SIGKILL: no effect is lost, and none happens twice."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from sparrowmq import sync
from sparrowmq.once.sql import MARKS, OUTBOX, add
from tests.once.conftest import BILLS

ROOT = Path(__file__).parents[2]
ORDERS = 150
LIMIT_S = 25


@contextmanager
def program(name: str, engine: sa.Engine, namesrv: str, *crash: str) -> Iterator[subprocess.Popen[bytes]]:
    database = engine.url.render_as_string(hide_password=False)
    command = [sys.executable, "-m", "tests.once.shop", name, database, namesrv, *crash]
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline, "it never came to pass"
        time.sleep(0.02)


def count(engine: sa.Engine, table: sa.Table) -> int:
    with engine.connect() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()


def more_bills(engine: sa.Engine, bills: int) -> bool:
    return count(engine, BILLS) >= bills


def order(engine: sa.Engine, numbers: range) -> None:
    for number in numbers:
        with engine.begin() as connection:
            add(connection, "orders", b"%d" % number, fifo=f"customer {number % 7}")


@pytest.mark.slow
def test_killed_relays_and_consumers_lose_no_effect_and_double_none(engine, background):
    """Each program is killed at its worst moment first, and then anywhere."""
    namesrv = background.namesrv
    with sync.connect(namesrv) as mq:
        mq.admin.create_topic("orders", queues=4)
    order(engine, range(60))
    for name in ("relay", "billing"):
        with program(name, engine, namesrv, "crash") as crashed:
            assert crashed.wait(LIMIT_S) == -9
    assert count(engine, OUTBOX) == 60, "all were sent, and none was deleted"
    order(engine, range(60, ORDERS))
    for bills in (40, 90):
        with program("relay", engine, namesrv), program("billing", engine, namesrv):
            wait_until(partial(more_bills, engine, bills))
    with program("relay", engine, namesrv), program("billing", engine, namesrv):
        wait_until(lambda: count(engine, OUTBOX) == 0 and count(engine, BILLS) >= ORDERS)
        with sync.connect(namesrv) as mq:
            wait_until(lambda: mq.admin.lag("billing").lag == 0)
    with engine.connect() as connection:
        billed = Counter(connection.execute(sa.select(BILLS.c.bill)).scalars())
    assert billed == {str(number): 1 for number in range(ORDERS)}
    assert count(engine, MARKS) == ORDERS
    with sync.connect(namesrv) as mq:
        sent = mq.admin.topic("orders").count
    assert sent >= ORDERS + 60, "the test met duplicates"
