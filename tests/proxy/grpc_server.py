"""A gRPC server for the methods, made of the library grpcio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import grpc
from grpc import aio

from sparrowmq.errors import SparrowError
from sparrowmq.proxy.methods import Methods


class _Methods(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, methods: Methods) -> None:
        self._of = {path: _unary(run) for path, run in methods.unary().items()}
        self._of |= {path: _stream(run) for path, run in methods.streams().items()}

    def service(self, details):
        return self._of.get(details.method)


def _call(context):
    host, _, port = context.peer().partition(":")[2].rpartition(":")
    return SimpleNamespace(
        metadata=dict(context.invocation_metadata()),
        peer=(host.strip("[]"), int(port)),
        time_left_s=context.time_remaining(),
        method="",
    )


def _unary(run):
    async def handle(raw, context):
        return await run(_call(context), raw)

    return grpc.unary_unary_rpc_method_handler(handle)


def _stream(run):
    async def handle(requests, context):
        try:
            await run(_call(context), requests, context.write)
        except SparrowError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    return grpc.stream_stream_rpc_method_handler(handle)


@asynccontextmanager
async def serving(methods: Methods) -> AsyncIterator[str]:
    """Serve the methods. Yields the address."""
    server = aio.server()
    server.add_generic_rpc_handlers([_Methods(methods)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)
