"""A small HTTP server for metrics and health: GET of a few paths, one request for each connection.

It has no TLS, no request bodies and no host names. h11 reads requests and refuses long ones. A connection ends after
ten seconds of silence. When there are too many connections, the oldest ends that has asked for nothing, or else the
oldest of all. So idle connections keep no probe from its answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, cast
from urllib.parse import parse_qsl, urlsplit

import h11

from sparrowmq import descriptors
from sparrowmq.errors import SparrowError
from sparrowmq.remoting.door import Door

log = logging.getLogger(__name__)

TEXT: Final = "text/plain; charset=utf-8"
_LONGEST_HEAD: Final = 8 << 10
_SILENCE_S: Final = 10.0


class Answer(NamedTuple):
    status: int
    body: bytes
    kind: str = TEXT


Query = Mapping[str, str]
Ask = Callable[[Query], Awaitable[Answer]]


class Endpoint:
    """Answers at one door.

    Args:
        door: already bound.
        pages: by path, which begins with "/".
    """

    def __init__(self, door: Door, pages: Mapping[str, Ask]) -> None:
        self._door = door
        self._pages = pages
        self._visits: dict[Visit, None] = {}  # the oldest first
        limit = descriptors.limit()
        self._most = descriptors.fitting(descriptors.MOST_VISITS, limit)
        self._backlog = descriptors.fitting(descriptors.SMALL_BACKLOG, limit)

    @property
    def host(self) -> str:
        return self._door.host

    @property
    def port(self) -> int:
        return self._door.port

    async def run(self, opened: Callable[[], object] = lambda: None) -> None:
        """Run until cancelled; call `opened` once it listens. Raises: ConfigError, the port cannot be listened on."""
        await self._door.serve(self._make, self._backlog, self._visits, opened)

    async def show(self, pages: Mapping[str, Ask]) -> None:
        """Answer with other pages until cancelled. An answer that is not complete then ends."""
        before, self._pages = self._pages, pages
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._pages = before
            for visit in [each for each in self._visits if each.has_asked]:
                visit.close()

    async def answer(self, target: str) -> Answer:
        try:
            parts = urlsplit(target)
        except ValueError as error:
            return Answer(400, f"{error}\n".encode())
        page = self._pages.get(parts.path)
        if page is None:
            return Answer(404, f"there are {', '.join(self._pages)}\n".encode())
        try:
            return await page(dict(parse_qsl(parts.query)))
        except (SparrowError, OSError) as error:
            return Answer(503, f"{error}\n".encode())

    def _make(self) -> Visit:
        if len(self._visits) >= self._most:
            silent = (each for each in self._visits if not each.has_asked)
            next(silent, next(iter(self._visits))).close()
        visit = Visit(self.answer, lambda ended: self._visits.pop(ended, None))
        self._visits[visit] = None
        return visit


class Visit(asyncio.Protocol):
    """One connection, for one request.

    Args:
        ended: called at its end.
    """

    def __init__(self, answer: Callable[[str], Awaitable[Answer]], ended: Callable[[Visit], object]) -> None:
        self._answer = answer
        self._ended = ended
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_LONGEST_HEAD)
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._limit: asyncio.TimerHandle | None = None

    @property
    def has_asked(self) -> bool:
        """Whether a page is being made for it, or was."""
        return self._task is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._limit = asyncio.get_running_loop().call_later(_SILENCE_S, self.close)

    def data_received(self, chunk: bytes) -> None:
        try:
            self._http.receive_data(chunk)
            self._go_on()
        except h11.RemoteProtocolError as error:
            self._say(Answer(error.error_status_hint, f"{error}\n".encode()))

    def connection_lost(self, error: Exception | None) -> None:
        self.close()

    def close(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self._ended(self)

    def _go_on(self) -> None:
        if self._task is not None:
            return
        while (event := self._http.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Request):
                self._begin(event)
                return
            if isinstance(event, h11.ConnectionClosed):
                self.close()
                return

    def _begin(self, request: h11.Request) -> None:
        if request.method != b"GET":
            self._say(Answer(405, b"only GET is answered here\n"))
            return
        if self._transport is not None:
            self._transport.pause_reading()  # h11 would keep any number of bytes behind the request
        self._task = asyncio.ensure_future(self._reply(request.target.decode("latin-1")))
        self._task.add_done_callback(self._replied)

    async def _reply(self, target: str) -> None:
        self._say(await self._answer(target))

    def _replied(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.error("a request was not answered", exc_info=task.exception())
            self.close()

    def _say(self, answer: Answer) -> None:
        if self._transport is None:
            return
        head = h11.Response(
            status_code=answer.status,
            headers=[
                ("content-type", answer.kind),
                ("content-length", str(len(answer.body))),
                ("connection", "close"),
            ],
        )
        # After an invalid request h11 may be unable to answer: then the connection ends without an answer.
        with suppress(h11.LocalProtocolError):
            said = [
                self._http.send(head),
                self._http.send(h11.Data(answer.body)),
                self._http.send(h11.EndOfMessage()),
            ]
            self._transport.write(b"".join(part for part in said if part))
        self._transport.close()
