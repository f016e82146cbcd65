"""The TLS of connections to other servers. Changed files are loaded again when the next connection begins.

asyncio and sockets ask a context for each connection. A `ClientContext` looks at its files then, so its owners hold it
as any other context. A pair of files that cannot be used is an error once it has stayed the same for one look: before,
perhaps only one of the two is replaced. The old files stay in use, and each look tries again.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from sparrowmq.errors import ConfigError
from sparrowmq.remoting.tls.expiry import ends_at, ends_soon
from sparrowmq.settings.changed_files import Stamp, stamp

log = logging.getLogger(__name__)


class ClientContext(ssl.SSLContext):
    """A client's context; new connections get the files as they are then. Open ones keep theirs.

    Args:
        load: loads the files into a context. Raises: ConfigError, one cannot be used.
        certificate: the file that is shown to servers, if one is.
        more: the other files that `load` reads.
    Raises:
        ConfigError: a file cannot be used.
    """

    def __new__(cls, *_: object) -> Self:
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, load: Callable[[ssl.SSLContext], object], certificate: Path | None, *more: Path | None) -> None:
        self._load = load
        self._certificate = certificate
        self._files = [path for path in (certificate, *more) if path is not None]
        self._loaded = stamp(self._files)
        self._failed: Stamp | None = None
        self._complaint = ""
        self._newer: ssl.SSLContext | None = None  # of changed files
        load(self)
        self._ends_at = ends_at(certificate) if certificate is not None else None

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """As ssl.SSLContext does, with the files as they are now."""
        self._look()
        return (
            super().wrap_bio(*arguments, **named) if self._newer is None else self._newer.wrap_bio(*arguments, **named)
        )

    def wrap_socket(self, *arguments: Any, **named: Any) -> ssl.SSLSocket:
        """As ssl.SSLContext does, with the files as they are now."""
        self._look()
        newer = self._newer
        return super().wrap_socket(*arguments, **named) if newer is None else newer.wrap_socket(*arguments, **named)

    @property
    def ends_at(self) -> datetime | None:
        """The end of the certificate that new connections show; None if they show none."""
        self._look()
        return self._ends_at

    def problem(self, now_ms: int) -> str:
        """The problem of the certificate; "" if there is none, or it has no problem and does not end soon."""
        end = self.ends_at
        if self._complaint:
            return f"the changed TLS files are not used: {self._complaint}"
        if self._certificate is None:
            return ""
        return ends_soon(self._certificate, end, now_ms, "other servers refuse it")

    def _look(self) -> None:
        now = stamp(self._files)
        if now == self._loaded:
            self._complaint = ""
            return
        newer = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            self._load(newer)
        except ConfigError as error:
            if now == self._failed and str(error) != self._complaint:
                self._complaint = str(error)
                log.error("the changed TLS files are not used, other servers are shown the old ones: %s", error)
            self._failed = now
            return
        self._newer, self._loaded, self._complaint = newer, now, ""
        if self._certificate is not None:
            self._ends_at = ends_at(self._certificate)
        log.info("the TLS files have changed; other servers are shown %s", self._certificate or "none")
