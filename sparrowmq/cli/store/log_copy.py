"""Another broker's log, read record by record, for `sparrowmq store repair --from`.

VIEW_MESSAGE_BY_ID (33) returns the bytes at an offset; masters and slaves answer it, Java's too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from ssl import SSLContext
from typing import Final, Self

from sparrowmq.client.cluster.blocking_network import Link
from sparrowmq.errors import NetworkError, RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.headers import ViewMessage
from sparrowmq.protocol.wire.connection import Sign

_ATTEMPTS: Final = 5
_PAUSE_S: Final = 1.0


class LogCopy:
    """The log of the broker at an address; a lost connection is opened again. Not for several threads at once."""

    def __init__(
        self,
        address: str,
        sign: Sign | None = None,
        tls: SSLContext | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._address = address
        self._sign = sign
        self._tls = tls
        self._sleep = sleep
        self._link: Link | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._hang_up()

    def record_at(self, offset: int) -> bytes | None:
        """Return the record at an offset; None if there is none.

        Raises:
            NetworkError: the broker does not answer, for some seconds.
            RemoteError: it refuses.
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._ask(offset)
            except NetworkError:
                self._hang_up()
                self._sleep(_PAUSE_S)
        return self._ask(offset)

    def _ask(self, offset: int) -> bytes | None:
        if self._link is None:
            self._link = Link(self._address, self._sign, self._tls)
        try:
            _, found = self._link.call(ViewMessage(offset))
        except RemoteError as error:
            if error.code == ResponseCode.SYSTEM_ERROR:  # "can not find message by the offset"
                return None
            raise
        return found

    def _hang_up(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link = None
