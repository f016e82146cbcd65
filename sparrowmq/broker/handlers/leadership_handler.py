"""HAND_OVER_LEAD (32003) and ELECT_MEMBER (32004): an operator's orders to the members of a group. Not in RocketMQ.

The member itself carries them out (member.py); this is only their way to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrowmq.errors import RemoteError
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.admin_headers import ElectMember, HandOverLead, HandOverLeadReply
from sparrowmq.remoting.handler import handles
from sparrowmq.remoting.peer import Peer

if TYPE_CHECKING:
    from sparrowmq.broker.failover.term import Term


class LeadershipHandler:
    """Take the orders.

    Args:
        term: of a member with failover; None at another broker, which refuses them.
    """

    def __init__(self, term: Term | None, figures: Figures) -> None:
        self._term = term
        if term is not None:
            problem = term.problem
            figures.gauge(
                "sparrowmq_member_problem",
                "1 if this member neither leads nor follows, and no other member leads",
                lambda: int(bool(problem())),
            )

    @handles(HandOverLead)
    async def hand_over(self, header: HandOverLead, body: bytes, peer: Peer) -> HandOverLeadReply:
        """Let another member in sync lead."""
        if self._term is None or self._term.hand_over is None:
            raise _not_here(self._term)
        return HandOverLeadReply(await self._term.hand_over(header.member))

    @handles(ElectMember)
    async def elect(self, header: ElectMember, body: bytes, peer: Peer) -> None:
        """Let this member begin a new line of epochs."""
        if self._term is None or self._term.elect is None:
            raise _not_here(self._term)
        if header.member != self._term.member:
            raise RemoteError(ResponseCode.SYSTEM_ERROR, f"this is member {self._term.member}")
        await self._term.elect(header.force)


def _not_here(term: Term | None) -> RemoteError:
    what = "enableControllerMode is not set" if term is None else "this member is not the master"
    return RemoteError(ResponseCode.SYSTEM_ERROR, what)
