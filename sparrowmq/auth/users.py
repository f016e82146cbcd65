"""The users of ACL 2.0, and the question that both ACLs answer: may this account do this to that, from there?

    user = User("orders-app", SigningKey(password), rules=Rules(...))
    allowed(user, Action.PUB, Resource(Kind.TOPIC, "orders"), source)

A user has the same attributes as an account of plain_acl.yml, so handlers see no difference. A Super user may do
everything. A user that is switched off may do nothing. The topics and groups of the broker itself are for Super users,
because messages of every topic wait there: no policy gives them to others.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from sparrowmq.auth.accounts import PORT_BYTES, Account, Perm, is_own
from sparrowmq.auth.address_patterns import Addresses
from sparrowmq.auth.policies import Action, Decision, Kind, Resource, Rules
from sparrowmq.protocol.names import DLQ, RETRY, TRACE_TOPIC, retry_topic
from sparrowmq.protocol.signature import SigningKey

_EVERY_PERM: Final = {Action.PUB: Perm.PUB, Action.SUB: Perm.SUB, Action.GET: Perm.PUB | Perm.SUB}


@dataclass(frozen=True, slots=True)
class User:
    """One user, as a principal of requests.

    Attributes:
        access_key: its name.
        is_admin: whether it is a Super user.
        is_enabled: False if it is switched off.
        is_unlimited: whether it may do everything, because authorizationEnabled=false.
        colleagues: the names of all users.
    """

    access_key: str
    key: SigningKey = field(repr=False)
    is_admin: bool = False
    is_enabled: bool = True
    rules: Rules = field(default=Rules(), repr=False, compare=False)
    is_unlimited: bool = False
    colleagues: Container[str] = field(default=(), repr=False, compare=False)

    # An account of plain_acl.yml has these; a user has none of them.
    addresses: ClassVar[Addresses] = Addresses(())
    perms: ClassVar[Mapping[str, int]] = {}
    is_broker: ClassVar[bool] = False
    certificate: ClassVar[str] = ""

    @property
    def may_publish(self) -> bool:
        """Whether it may send to any topic at all."""
        return self.is_enabled and (self.is_admin or self.is_unlimited or self.rules.may_allow(Action.PUB))

    def may_from(self, host: bytes, resource: str, needed: int) -> bool:
        """Whether a peer with this `host` has one of the permissions on a topic or retry topic in its name."""
        return self.may(resource, needed, host[:-PORT_BYTES])

    def may(self, resource: str, needed: int, source: bytes = b"") -> bool:
        """Whether the user has one of the permissions on a topic or retry topic, from a packed address."""
        if resource.startswith(RETRY):
            asked = Resource(Kind.GROUP, resource.removeprefix(RETRY))
        else:
            asked = Resource(Kind.TOPIC, resource)
        return (needed & Perm.PUB != 0 and self.does(Action.PUB, asked, source)) or (
            needed & Perm.SUB != 0 and self.does(Action.SUB, asked, source)
        )

    def does(self, action: Action, resource: Resource, source: bytes) -> bool:
        """Whether the user may do this to a resource, from a packed address."""
        if not self.is_enabled:
            return False
        if self.is_admin:
            return True
        kind, name = resource
        if kind is not Kind.CLUSTER and is_own(retry_topic(name) if kind is Kind.GROUP else name):
            return False
        if self.is_unlimited:
            return True
        decision = self.rules.decision(action, resource, source)
        if decision is None and (action, name) == (Action.PUB, TRACE_TOPIC):
            return True  # every user may write traces, unless an entry denies it
        if decision is not Decision.ALLOW:
            return False
        # A dead letter is a message of the group: who may not consume as the group may not read it.
        is_letter = kind is Kind.TOPIC and name.startswith(DLQ)
        return not is_letter or self.does(Action.SUB, Resource(Kind.GROUP, name.removeprefix(DLQ)), source)


def allowed(principal: Account | User, action: Action, resource: Resource, source: bytes) -> bool:
    """Whether an account of either ACL may do this to a topic, group or cluster.

    Args:
        source: the client's address, packed to 4 or 16 bytes.
    """
    if isinstance(principal, User):
        return principal.does(action, resource, source)
    kind, name = resource
    needed = _EVERY_PERM.get(action)
    if kind is Kind.CLUSTER or needed is None:
        return principal.is_admin
    host = source + bytes(PORT_BYTES)
    return principal.may_from(host, retry_topic(name) if kind is Kind.GROUP else name, needed)
