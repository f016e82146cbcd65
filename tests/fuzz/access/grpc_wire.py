"""A client of the gRPC port that sends any call, signed or not, and keeps all that it hears."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from grpc import aio

from sparrowmq.auth.grpc_signature import AUTHORIZATION, DATE_TIME, SCHEME
from sparrowmq.grpc.caller import CLIENT_ID
from tests.fuzz.access.grpc_attacks import Call
from tests.fuzz.access.wire import Credentials

Metadata = tuple[tuple[str, str], ...]
ANSWER_S: Final = 10.0
SILENCE_S: Final = 0.03  # a stream without settings has no answer
_OPTIONS: Final = [("grpc.use_local_subchannel_pool", 1)]


def signed(client_id: str, credentials: Credentials | None, now_ms: int) -> Metadata:
    """The metadata of a call."""
    if credentials is None:
        return ((CLIENT_ID, client_id),)
    now = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    digest = hmac.new(credentials.secret_key.encode(), now.encode(), hashlib.sha1).hexdigest().upper()
    header = f"{SCHEME} Credential={credentials.access_key}, SignedHeaders={DATE_TIME}, Signature={digest}"
    return ((CLIENT_ID, client_id), (DATE_TIME, now), (AUTHORIZATION, header))


class GrpcWire:
    """A connection.

    Args:
        now_ms: the time of the server's clock.
    Attributes:
        heard: every answer, until it is cleared.
        failures: the text of each call that the server ended with an error.
    """

    def __init__(self, address: str, credentials: Credentials | None, now_ms: Callable[[], int]) -> None:
        self._channel = aio.insecure_channel(address, _OPTIONS)
        self._credentials = credentials
        self._now_ms = now_ms
        self._streams: list[Any] = []
        self._readers: list[asyncio.Task[None]] = []
        self.heard: list[bytes] = []
        self.failures: list[str] = []

    async def send(self, call: Call) -> list[Any]:
        """Make a call. Returns its answers; of a stream that stays open only the first one."""
        metadata = signed(call.client_id, self._credentials, self._now_ms())
        raw = [each.SerializeToString() for each in call.requests]
        try:
            if call.method.is_silent:
                return await self._open(call, raw, metadata)
            if call.method.is_stream:
                made = self._channel.unary_stream(call.method.path)(raw[0], metadata=metadata)
                return [each async for each in self._read(made, call)]
            one = self._channel.unary_unary(call.method.path)(raw[0], metadata=metadata)
            self._cancel(one, call)
            return [self._heard(await one, call)]
        except aio.AioRpcError as error:
            self.failures.append(f"{error.code().name}: {error.details()}")
        except asyncio.CancelledError:
            if call.ends_after_s is None:
                raise
        return []

    async def end_streams(self) -> None:
        """End the streams that stay open."""
        for stream in self._streams:
            stream.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        self._streams, self._readers = [], []

    async def close(self) -> None:
        await self.end_streams()
        await self._channel.close()

    async def _open(self, call: Call, raw: Sequence[bytes], metadata: Metadata) -> list[Any]:
        stream = self._channel.stream_stream(call.method.path)(metadata=metadata)
        self._cancel(stream, call)
        # The server may have ended it, and a write to a stream that was cancelled early never returns.
        with suppress(asyncio.InvalidStateError, TimeoutError):
            async with asyncio.timeout(ANSWER_S if call.ends_after_s is None else call.ends_after_s):
                for each in raw:
                    await stream.write(each)
        first = asyncio.get_running_loop().create_future()
        self._streams.append(stream)
        self._readers.append(asyncio.create_task(self._follow(stream, call, first)))
        has_settings = any(each.HasField("settings") for each in call.requests)  # they are answered, or refused
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S if has_settings else SILENCE_S):
                return [answer for answer in [await asyncio.shield(first)] if answer is not None]
        return []

    async def _follow(self, stream: Any, call: Call, first: asyncio.Future[Any]) -> None:
        try:
            async for raw in stream:
                answer = self._heard(raw, call)
                if not first.done():
                    first.set_result(answer)
        except aio.AioRpcError as error:
            self.failures.append(f"{error.code().name}: {error.details()}")
        finally:
            if not first.done():
                first.set_result(None)

    async def _read(self, made: Any, call: Call) -> AsyncIterator[Any]:
        self._cancel(made, call)
        async for raw in made:
            yield self._heard(raw, call)

    def _cancel(self, made: Any, call: Call) -> None:
        if call.ends_after_s is not None:
            asyncio.get_running_loop().call_later(call.ends_after_s, made.cancel)

    def _heard(self, raw: bytes, call: Call) -> Any:
        self.heard.append(raw)
        return call.method.answer.FromString(raw)
