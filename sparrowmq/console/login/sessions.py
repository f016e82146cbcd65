"""The sessions of visitors: a signed cookie names a session, which ends with the log-out, or after half a day,
or when its user changes.

    cookie  id.signature      id: 32 random bytes; the signature is HMAC-SHA256 with a key made at each start

The signature alone shows that a cookie is forged. A restart of the console ends all sessions.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, Protocol

from sparrowmq.console.users import Role
from sparrowmq.loop.clock import Clock

LIFE_S: Final = 12 * 3600.0
_MOST: Final = 1000  # sessions; the oldest makes room
_MOST_OF_USER: Final = 50  # so one user cannot end the sessions of all others
_MOST_NOTICES: Final = 20  # that wait for a page


@dataclass(frozen=True, slots=True)
class Notice:
    """The result of an action, or the reason of its failure."""

    text: str
    is_failure: bool = False


class OpenPage(Protocol):
    @property
    def is_open(self) -> bool:
        """Whether a browser still shows it."""

    def show(self, notice: Notice) -> None: ...

    def close(self) -> None: ...


@dataclass(eq=False, slots=True)
class Session:
    """The visit of one user.

    Attributes:
        ends_s: by the clock's `monotonic`.
        pages: the pages that are open, the newest last; they are closed when it ends.
        waiting: notices for the next page, because no page was open.
    """

    name: str
    role: Role
    ends_s: float
    is_alive: bool = True
    pages: list[OpenPage] = field(default_factory=list)
    waiting: deque[Notice] = field(default_factory=lambda: deque(maxlen=_MOST_NOTICES))

    def may(self, role: Role) -> bool:
        return self.is_alive and self.role >= role

    def notify(self, notice: Notice, of: OpenPage) -> None:
        """Show a notice on the page where it arose; or, if the visitor has left that page, on the page that follows."""
        found = next((each for each in (of, *reversed(self.pages)) if each.is_open), None)
        if found is not None:
            found.show(notice)
        else:
            self.waiting.append(notice)

    def opened(self, page: OpenPage) -> None:
        """Add a page, and show there what waits."""
        self.pages.append(page)
        while self.waiting:
            page.show(self.waiting.popleft())

    def left(self, page: OpenPage) -> None:
        if page in self.pages:
            self.pages.remove(page)


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
        own = [ident for ident, each in self._sessions.items() if each.name == name]
        if len(own) >= _MOST_OF_USER:
            self._end(own[0])
        elif len(self._sessions) >= _MOST:
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

    def end_of(self, names: Collection[str]) -> None:
        """End the sessions of some users."""
        for ident in [ident for ident, each in self._sessions.items() if each.name in names]:
            self._end(ident)

    def sweep(self) -> None:
        """End the sessions whose time is over."""
        now_s = self._clock.monotonic()
        for ident in [ident for ident, each in self._sessions.items() if each.ends_s <= now_s]:
            self._end(ident)

    def _end(self, ident: str) -> None:
        session = self._sessions.pop(ident)
        session.is_alive = False
        for page in session.pages:
            page.close()

    def _ident(self, cookie: str | None) -> str | None:
        ident, _, signature = (cookie or "").partition(".")
        is_ours = hmac.compare_digest(signature.encode(), self._signature(ident).encode())
        return ident if is_ours else None

    def _signature(self, ident: str) -> str:
        return hmac.new(self._key, ident.encode(), hashlib.sha256).hexdigest()
