"""Requests about users and policies (ACL 2.0).

Source: the headers CreateUserRequestHeader to ListAclsRequestHeader, Java 5.4.0.
"""

from __future__ import annotations

from sparrowmq.protocol.codes import RequestCode
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
