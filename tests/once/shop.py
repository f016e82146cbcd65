"""A shop in two programs, which tests kill: `relay` sends the outbox, `billing` writes a bill for each order.

python -m tests.once.shop relay|billing DATABASE NAMESRV [CRASH]    with CRASH it kills itself at the worst moment
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import sqlalchemy as sa

from sparrowmq import ReceivedMessage, sync
from sparrowmq.once import idempotent, relay
from sparrowmq.once.sql import SqlOutbox, SqlStore


def die(*_arguments: object) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def send(engine: sa.Engine, namesrv: str, crash: bool) -> None:
    if crash:  # between the answers of the broker and the deletion of the rows
        setattr(relay.Turn, "settle", die)  # noqa: B010
    with sync.connect(namesrv) as mq:
        SqlOutbox(engine).relay(mq, threading.Event())


def bill(engine: sa.Engine, namesrv: str, crash: bool) -> None:
    mq = sync.connect(namesrv)

    @mq.handler("orders", group="billing", start="earliest", concurrency=2)
    @idempotent(SqlStore(engine), name="billing")
    def write(message: ReceivedMessage, connection: sa.Connection) -> None:
        connection.execute(sa.text("INSERT INTO bills VALUES (:bill)"), {"bill": message.text()})
        if crash and message.text() == "30":  # between the effect and the commit
            die()

    mq.run()


if __name__ == "__main__":
    name, database, namesrv, *crash = sys.argv[1:]
    engine = sa.create_engine(database, connect_args={"timeout": 30} if database.startswith("sqlite") else {})
    (send if name == "relay" else bill)(engine, namesrv, bool(crash))
