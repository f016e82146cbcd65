"""Figures of a driver for Prometheus: a port that answers `/metrics` while something runs.

    with exposed("127.0.0.1:5558", listener.tell_metrics):
        query.awaitTermination()

It answers in a thread of its own. Nothing is measured for it: figures are looked up when somebody asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from threading import Thread
from typing import Final

from sparrowmq.errors import ConfigError
from sparrowmq.loop.slices import at_once
from sparrowmq.metrics.figures import Figures
from sparrowmq.metrics.http_endpoint import Answer, Endpoint, MakePage, Query
from sparrowmq.metrics.metrics_page import page, process_series
from sparrowmq.metrics.series_limit import series_of
from sparrowmq.protocol.hosts import address_text, split_address
from sparrowmq.remoting.listener import Listener, is_loopback

Declare = Callable[[Figures], object]

_MOST_SERIES: Final = 200
_END_LIMIT_S: Final = 10


@contextmanager
def exposed(
    address: str | None, declare: Declare, pages: Mapping[str, MakePage] | None = None, *, insecure: bool = False
) -> Iterator[str | None]:
    """Serve the figures that `declare` declares at `host:port`. Returns the address, with the real port for port 0.

    Without an address nothing is done.

    Args:
        pages: others to serve, by their path.
        insecure: other machines may reach the address.
    Raises:
        ConfigError: it is no address, or cannot be had, or other machines reach it.
    """
    if address is None:
        yield None
        return
    door, figures = Listener(*demand_address(address, insecure=insecure), setting="port for metrics"), Figures()
    declare(figures)
    door.bind()
    running: Future[Callable[[], object]] = Future()
    serving = _serve(door, figures, running, pages or {})
    thread = Thread(target=asyncio.run, args=[serving], name="metrics", daemon=True)
    thread.start()
    end = running.result(_END_LIMIT_S)
    try:
        yield address_text((door.host, door.port))
    finally:
        with suppress(RuntimeError):  # The loop has ended by itself.
            end()
        thread.join(_END_LIMIT_S)


async def _serve(
    door: Listener, figures: Figures, running: Future[Callable[[], object]], pages: Mapping[str, MakePage]
) -> None:
    """Answer until the function that `running` gets is called. It gets an error if the port cannot listen."""

    async def metrics(_: Query) -> Answer:
        series = series_of(figures, {"node_type": "spark"}, _MOST_SERIES)
        return at_once(page([*series, *process_series()]))

    async def health(_: Query) -> Answer:
        return Answer(200, b"ok\n")

    endpoint = Endpoint(door, {"/metrics": metrics, "/healthz": health, **pages})
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    try:
        await endpoint.run(lambda: running.set_result(partial(loop.call_soon_threadsafe, task.cancel)))
    except asyncio.CancelledError:
        pass
    except ConfigError as error:
        running.set_exception(error)


def demand_address(address: str, *, insecure: bool) -> tuple[str, int]:
    """Return the host and the port of an address; port 0 is any that is free.

    Raises: ConfigError, it is none, or other machines reach it and `insecure` is not set.
    """
    try:
        host, port = split_address(address, least_port=0)
    except ConfigError as error:
        raise ConfigError(f"metrics: {error}") from None
    if not is_loopback(host) and not insecure:
        raise ConfigError(
            f"metrics at {address} show the names of topics to other machines, without a log-in: listen on 127.0.0.1, "
            "or set insecure (--insecure; insecure = true in the file of a lake) if the network is trusted"
        )
    return host, port
