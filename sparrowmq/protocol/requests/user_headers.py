"""Requests about users and policies (ACL 2.0).

Source: the headers CreateUserRequestHeader to ListAclsRequestHeader, Java 5.4.0.
"""

from __future__ import annotations

from typing import ClassVar

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.wire.header import NoFields, Request


class CreateUser(Request[NoFields]):
    """Create a user. The body is a `UserEntry`."""

    code: ClassVar[int] = RequestCode.AUTH_CREATE_USER

    username: str


class UpdateUser(Request[NoFields]):
    """Change the given members of a user. The body is a `UserEntry`."""

    code: ClassVar[int] = RequestCode.AUTH_UPDATE_USER

    username: str


class DeleteUser(Request[NoFields]):
    """Delete a user and its policies."""

    code: ClassVar[int] = RequestCode.AUTH_DELETE_USER

    username: str


class GetUser(Request[NoFields]):
    """Ask for a user. The answer's body is a `UserEntry`; it is empty if there is no such user."""

    code: ClassVar[int] = RequestCode.AUTH_GET_USER

    username: str


class ListUsers(Request[NoFields]):
    """Ask for the users whose names contain a text. The answer's body is a list."""

    code: ClassVar[int] = RequestCode.AUTH_LIST_USER

    filter: str | None = None


class CreateAcl(Request[NoFields]):
    """Add entries to the policies of a subject. The body is a `UserPolicies`."""

    code: ClassVar[int] = RequestCode.AUTH_CREATE_ACL

    subject: str


class UpdateAcl(Request[NoFields]):
    """Likewise; entries of the same resource are replaced."""

    code: ClassVar[int] = RequestCode.AUTH_UPDATE_ACL

    subject: str


class DeleteAcl(Request[NoFields]):
    """Delete the policies of a subject, or only the entry of a resource."""

    code: ClassVar[int] = RequestCode.AUTH_DELETE_ACL

    subject: str
    policy_type: str | None = None
    resource: str | None = None


class GetAcl(Request[NoFields]):
    """Ask for the policies of a subject. The answer's body is a `UserPolicies`; it is empty if there are none."""

    code: ClassVar[int] = RequestCode.AUTH_GET_ACL

    subject: str


class ListAcls(Request[NoFields]):
    """Ask for the policies of the subjects and resources that contain a text. The answer's body is a list."""

    code: ClassVar[int] = RequestCode.AUTH_LIST_ACL

    subject_filter: str | None = None
    resource_filter: str | None = None
