"""The connections that wait for answers, by the correlation id of their requests.

    asker ── request (REPLY_TO_CLIENT, CORRELATION_ID, TTL) ──> broker: stored, and noted here
    asker <── answer ── broker: found here by CORRELATION_ID <── answerer

Any client can announce any client id, so the id alone does not say where an answer belongs. The first request with a
correlation id counts, unless the same account sends it again. Other clients know the id only after that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparrowmq.core.digits import whole_number
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.names import REPLY_SUFFIX
from sparrowmq.remoting.ownership import owner_of
from sparrowmq.remoting.peer import Peer

MOST_KEPT: Final = 20_000  # about 10 MB; the oldest go first
LONGEST_WAIT_S: Final = 600.0
USUAL_WAIT_S: Final = 30.0
LONGEST_ID: Final = 255  # the ids of Java, Go and Python are UUIDs


@dataclass(slots=True)
class ReplyWaiter:
    """A connection that sent a request."""

    peer: Peer
    owner: str | None  # the account that signed the request
    client_id: str
    requested_s: float  # when the request came; until `expires` it may be answered
    expires: float


class Askers:
    """The requests that may still be answered."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_id: dict[str, ReplyWaiter] = {}

    def note(self, topic: str, properties: Properties, peer: Peer) -> None:
        """Note a stored message that asks for an answer. An answer has the same properties; its topic tells it."""
        correlation_id = properties.get(Property.CORRELATION_ID)
        client_id = properties.get(Property.REPLY_TO_CLIENT)
        if not correlation_id or not client_id or topic.endswith(REPLY_SUFFIX):
            return
        if len(correlation_id) > LONGEST_ID or len(client_id) > LONGEST_ID:
            return
        now, owner = self._clock.monotonic(), owner_of(peer)
        known = self._by_id.get(correlation_id)
        if known is not None and known.expires > now and known.owner != owner:
            return
        self._by_id.pop(correlation_id, None)
        self._by_id[correlation_id] = ReplyWaiter(peer, owner, client_id, now, now + _wait_s(properties))
        self._forget(now)

    def find(self, correlation_id: str | None, client_id: str) -> ReplyWaiter | None:
        """Return the connection that waits for an answer, if the request came to this broker."""
        found = self._by_id.get(correlation_id or "")
        if found is None or found.client_id != client_id or found.expires <= self._clock.monotonic():
            return None
        return found

    def _forget(self, now: float) -> None:
        """Forget the oldest request while it has expired, or while there are too many."""
        while self._by_id:
            oldest = next(iter(self._by_id))
            if self._by_id[oldest].expires > now and len(self._by_id) <= MOST_KEPT:
                return
            del self._by_id[oldest]


def _wait_s(properties: Properties) -> float:
    ttl_ms = whole_number(properties.get(Property.TTL))
    return USUAL_WAIT_S if ttl_ms is None else min(ttl_ms / 1000, LONGEST_WAIT_S)
