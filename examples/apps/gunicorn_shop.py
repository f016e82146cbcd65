"""gunicorn: each worker opens a client of its own in `post_fork`, because threads and sockets do not survive a fork.

pip install ".[server]" gunicorn
sparrowmq dev &
export NAMESRV_ADDR=127.0.0.1:9876
cd examples/apps
gunicorn --config gunicorn_hooks.py --bind 127.0.0.1:8000 gunicorn_shop:app &
curl -sS --retry 60 --retry-delay 1 --retry-connrefused -X POST localhost:8000/orders/o-1
curl -sS -X POST localhost:8000/orders/o-2
"""

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from sparrowmq import sync

_open = ExitStack()
_clients: list[sync.SyncClient] = []


def open_client() -> None:
    _clients.append(_open.enter_context(sync.connect()))


def close_client() -> None:
    _open.close()


def app(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    order = environ["PATH_INFO"].rpartition("/")[2]
    sent = _clients[0].send("orders", order.encode(), keys=order)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"worker {os.getpid()} sent {order} as {sent.msg_id}\n".encode()]
