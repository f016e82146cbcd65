"""A server of another kind: ready when something listens at its address, and its clients wait for the rest."""

from __future__ import annotations

import time

from tests.interop.child import START_LIMIT_S, Child, listens


class Listening(Child):
    """Serves at `address` while its context is entered."""

    address: str

    def _wait_ready(self) -> None:
        host, _, port = self.address.partition(":")
        deadline = time.monotonic() + START_LIMIT_S
        while not listens(host, int(port)):
            if self._running().poll() is not None or time.monotonic() > deadline:
                raise TimeoutError(f"nothing listens at {self.address}: {self.said()[-2000:]}")
            time.sleep(0.05)
