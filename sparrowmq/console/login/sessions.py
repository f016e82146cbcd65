"""The sessions of visitors: a signed cookie names a session, which ends with the log-out, or after half a day.

    cookie  id.signature      id: 32 random bytes; the signature is HMAC-SHA256 with a key made at each start

The signature alone shows that a cookie is forged. A restart of the console ends all sessions.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.console.users import Role
from sparrowmq.loop.clock import Clock

LIFE_S: Final = 12 * 3600.0
_MOST: Final = 1000  # sessions; the oldest makes room


@dataclass(eq=False, slots=True)
class Session:
    """The visit of one user.

    Attributes:
        ends_s: by the clock's `monotonic`.
        on_end: called once, when it ends: closes the pages that are open.
    """

    name: str
    role: Role
    ends_s: float
    is_alive: bool = True
    on_end: list[Callable[[], None]] = field(default_factory=list)

    def may(self, role: Role) -> bool:
        """Return whether the visitor has this role, and is logged in."""
        return self.is_alive and self.role >= role


class Sessions:
    """All sessions, by id, the oldest first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, name: str, role: Role) -> str:
        """A new session; returns its cookie."""
        self.sweep()
        if len(self._sessions) >= _MOST:
            self._end(next(iter(self._sessions)))
        ident = secrets.token_hex(32)
        self._sessions[ident] = Session(name, role, self._clock.monotonic() + LIFE_S)
        return f"{ident}.{self._signature(ident)}"

    def find(self, cookie: str | None) -> Session | None:
        """The session of a cookie, if the cookie is valid and the session has not ended."""
        ident = self._ident(cookie)
        session = self._sessions.get(ident) if ident is not None else None
        if session is not None and session.ends_s <= self._clock.monotonic():
            self.sweep()
            return None
        return session

    def end(self, cookie: str | None) -> None:
        """Log out."""
        ident = self._ident(cookie)
        if ident in self._sessions:
            self._end(ident)

    def sweep(self) -> None:
        """End the sessions whose time is over."""
        now_s = self._clock.monotonic()
        for ident in [ident for ident, each in self._sessions.items() if each.ends_s <= now_s]:
            self._end(ident)

    def _end(self, ident: str) -> None:
        session = self._sessions.pop(ident)
        session.is_alive = False
        for close in session.on_end:
            close()

    def _ident(self, cookie: str | None) -> str | None:
        ident, _, signature = (cookie or "").partition(".")
        is_ours = hmac.compare_digest(signature.encode(), self._signature(ident).encode())
        return ident if is_ours else None

    def _signature(self, ident: str) -> str:
        return hmac.new(self._key, ident.encode(), hashlib.sha256).hexdigest()
