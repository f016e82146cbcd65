"""Requests about users and policies (ACL 2.0).

The file that keeps users and policies has their bodies, too.
Source: the headers CreateUserRequestHeader to ListAclsRequestHeader, UserInfo and AclInfo, Java 5.4.0.
"""

# ruff: noqa: RUF012 - msgspec gives each body its own empty list or dict

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import field

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.requests.bodies import DataVersion, JournalMark
from sparrowmq.protocol.wire.body import Body
from sparrowmq.protocol.wire.header import NoFields, Request, request


@request(RequestCode.AUTH_CREATE_USER)
class CreateUser(Request[NoFields]):
    """Create a user. The body is a `UserEntry`."""

    username: str


@request(RequestCode.AUTH_UPDATE_USER)
class UpdateUser(Request[NoFields]):
    """Change the given members of a user. The body is a `UserEntry`."""

    username: str


@request(RequestCode.AUTH_DELETE_USER)
class DeleteUser(Request[NoFields]):
    """Delete a user and its policies."""

    username: str


@request(RequestCode.AUTH_GET_USER)
class GetUser(Request[NoFields]):
    """Ask for a user. The answer's body is a `UserEntry`; it is empty if there is no such user."""

    username: str


@request(RequestCode.AUTH_LIST_USER)
class ListUsers(Request[NoFields]):
    """Ask for the users whose names contain a text. The answer's body is a list."""

    filter: str | None = None


@request(RequestCode.AUTH_CREATE_ACL)
class CreateAcl(Request[NoFields]):
    """Add entries to the policies of a subject. The body is a `UserPolicies`."""

    subject: str


@request(RequestCode.AUTH_UPDATE_ACL)
class UpdateAcl(Request[NoFields]):
    """Likewise; entries of the same resource are replaced."""

    subject: str


@request(RequestCode.AUTH_DELETE_ACL)
class DeleteAcl(Request[NoFields]):
    """Delete the policies of a subject, or only the entry of a resource."""

    subject: str
    policy_type: str | None = None
    resource: str | None = None


@request(RequestCode.AUTH_GET_ACL)
class GetAcl(Request[NoFields]):
    """Ask for the policies of a subject. The answer's body is a `UserPolicies`; it is empty if there are none."""

    subject: str


@request(RequestCode.AUTH_LIST_ACL)
class ListAcls(Request[NoFields]):
    """Ask for the policies of the subjects and resources that contain a text. The answer's body is a list."""

    subject_filter: str | None = None
    resource_filter: str | None = None


SUPER: Final = "Super"
NORMAL: Final = "Normal"
ENABLED: Final = "enable"
DISABLED: Final = "disable"
SUBJECT: Final = "User:"  # before the name of the user in the subject of policies


class UserEntry(Body):
    """A user. (Java: UserInfo)"""

    username: str = ""
    password: str | None = None  # the secret key of its signatures
    user_type: str | None = None  # Super or Normal
    user_status: str | None = None  # enable or disable


class PolicyRule(Body):
    """One entry of a policy. (Java: AclInfo.PolicyEntryInfo)"""

    resource: str = ""
    actions: list[str] = []
    source_ips: list[str] | None = None
    decision: str = ""


class Policy(Body):
    """The entries of one kind, Custom or Default. (Java: AclInfo.PolicyInfo)"""

    policy_type: str | None = None
    entries: list[PolicyRule] = []


class UserPolicies(Body):
    """All policies of a subject, such as User:orders-app. (Java: AclInfo)"""

    subject: str = ""
    policies: list[Policy] = []


class UserTable(Body):
    """The users of a broker and their policies by user name: users.json. Ours; Java keeps them in RocksDB."""

    data_version: DataVersion = field(default_factory=DataVersion)
    users: dict[str, UserEntry] = {}
    policies: dict[str, list[Policy]] = {}
    journal: JournalMark | None = None


def encode_list(entries: list[UserEntry] | list[UserPolicies]) -> bytes:
    """Encode the answer to a list, as a JSON array."""
    return b"[" + b",".join(entry.encode() for entry in entries) + b"]"


def decode_users(raw: bytes) -> list[UserEntry]:
    """Parse the answer to listUser; an empty body is an empty list. Raises: msgspec.MsgspecError."""
    return msgspec.json.decode(raw or b"[]", type=list[UserEntry])


def decode_policies(raw: bytes) -> list[UserPolicies]:
    """Parse the answer to listAcl; likewise."""
    return msgspec.json.decode(raw or b"[]", type=list[UserPolicies])
