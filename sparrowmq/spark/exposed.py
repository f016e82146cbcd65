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
    """Serve the figures that `declare` declares, and `pages` by path, at `host:port`; nothing without an address.

    Returns the address, with the real port for port 0. With `insecure`, other machines may reach the address.
    Raises: ConfigError, as `check_metrics_address`, or the address cannot be used.
    """
    if address is None:
        yield None
        return
    figures = Figures()
    listener = Listener(*check_metrics_address(address, insecure=insecure), setting="port for metrics")
    declare(figures)
    listener.bind()
    stop_function: Future[Callable[[], object]] = Future()
    serving = _serve(listener, figures, stop_function, pages or {})
    thread = Thread(target=asyncio.run, args=[serving], name="metrics", daemon=True)
    thread.start()
    end = stop_function.result(_END_LIMIT_S)
    try:
        yield address_text((listener.host, listener.port))
    finally:
        with suppress(RuntimeError):  # The loop has ended by itself.
            end()
        thread.join(_END_LIMIT_S)


async def _serve(
    listener: Listener, figures: Figures, stop_function: Future[Callable[[], object]], pages: Mapping[str, MakePage]
) -> None:
    """Answer until the function that `stop_function` gets is called. It gets an error if the port cannot listen."""

    async def metrics(_: Query) -> Answer:
        series = series_of(figures, {"node_type": "spark"}, _MOST_SERIES)
        return at_once(page([*series, *process_series()]))

    async def health(_: Query) -> Answer:
        return Answer(200, b"ok\n")

    endpoint = Endpoint(listener, {"/metrics": metrics, "/healthz": health, **pages})
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    try:
        await endpoint.run(lambda: stop_function.set_result(partial(loop.call_soon_threadsafe, task.cancel)))
    except asyncio.CancelledError:
        pass
    except ConfigError as error:
        stop_function.set_exception(error)


def check_metrics_address(address: str, *, insecure: bool) -> tuple[str, int]:
    """Return the host and port of an address. Raises: ConfigError, other machines reach it without `insecure`."""
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
