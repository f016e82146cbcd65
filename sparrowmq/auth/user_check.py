"""The check of requests by users and policies (ACL 2.0).

    no access key, or one of no user    denied
    a user that is switched off         denied
    a wrong signature                   denied
    needs                               each needs a policy that allows it

A request for administrators needs an action on the cluster, such as Update on `Cluster:main`, or on the topic and the
group in its header, if it concerns only these. The requests about users, policies and accounts are for Super users. The
other requests need the same topics and groups as in 4.x (permissions.py); some accept Get in the place of Sub.
Source: DefaultAuthorizationContextBuilder and the annotations of the headers, Java 5.4.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sparrowmq.auth import permissions
from sparrowmq.auth.addresses import PORT_BYTES
from sparrowmq.auth.permissions import ADMINISTRATORS, Peer, TopicAt
from sparrowmq.auth.policies import Action, Resource, ResourceKind, resource_of
from sparrowmq.auth.users import User
from sparrowmq.errors import AccessDenied, DenialKind
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.requests.request_table import Row
from sparrowmq.protocol.signature import ACCESS_KEY
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.header import Request

_DENIED_CODE: Final = int(ResponseCode.NO_PERMISSION)

# What these do concerns only the topic and the group in the header.
_ACTIONS_ON_NAMED: Final = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: Action.CREATE,
    RequestCode.DELETE_TOPIC_IN_BROKER: Action.DELETE,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: Action.DELETE,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: Action.UPDATE,
    RequestCode.GET_TOPIC_STATS_INFO: Action.GET,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: Action.GET,
    RequestCode.GET_CONSUME_STATS: Action.GET,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Action.GET,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: Action.GET,
    RequestCode.QUERY_CONSUME_TIME_SPAN: Action.GET,
    RequestCode.GET_CONSUMER_RUNNING_INFO: Action.GET,
    RequestCode.QUERY_CONSUME_QUEUE: Action.GET,
    RequestCode.GET_TOPIC_CONFIG: Action.GET,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: Action.GET,
}
# These show the cluster; all others change it.
_READING_CODES: Final = frozenset(
    {
        RequestCode.GET_DIAGNOSIS,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.QUERY_CORRECTION_OFFSET,
        RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.GET_ALL_PRODUCER_INFO,
        RequestCode.VIEW_BROKER_STATS_DATA,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
    }
)
_SUPER_USER_CODES: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_GET_USER,
        RequestCode.AUTH_LIST_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
        RequestCode.AUTH_GET_ACL,
        RequestCode.AUTH_LIST_ACL,
    }
)
# These are enough in the place of Pub and Sub.
_ALTERNATIVE_ACTIONS: Final = {
    RequestCode.QUERY_MESSAGE: Action.GET,
    RequestCode.QUERY_CONSUMER_OFFSET: Action.GET,
    RequestCode.UPDATE_CONSUMER_OFFSET: Action.UPDATE,
    RequestCode.VIEW_MESSAGE_BY_ID: Action.GET,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: Action.GET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: Action.GET,
    RequestCode.GET_MAX_OFFSET: Action.GET,
    RequestCode.GET_MIN_OFFSET: Action.GET,
    RequestCode.GET_EARLIEST_MSG_STORETIME: Action.GET,
}


@dataclass(frozen=True, slots=True)
class UserRules:
    """The settings of the check: the name of the cluster, and requests that need no signature, or no policy."""

    cluster: str
    authentication_codes: frozenset[int] = frozenset()
    authorization_codes: frozenset[int] = frozenset()


class UserCheck:
    """The check by users. `by_name` returns the users now."""

    def __init__(self, rules: UserRules, by_name: Callable[[], Mapping[str, User]], topic_at: TopicAt) -> None:
        self._rules = rules
        self._cluster = Resource(ResourceKind.CLUSTER, rules.cluster)
        self._by_name = by_name
        self._topic_at = topic_at

    def __call__(self, peer: Peer, command: Command, row: Row, header: Request[Any]) -> None:
        """Do nothing if the request is allowed. Raises: AccessDenied."""
        name = command.ext_fields().get(ACCESS_KEY)
        user = self._by_name().get(name) if name is not None else None
        if user is not None:
            self.authenticate(user, peer, command)
            self.authorise(user, peer, row, header, command.body)
            return
        peer.principal = None
        if int(row.code) not in self._rules.authentication_codes & self._rules.authorization_codes:
            reason = "username cannot be null." if name is None else f"User:{name} is not found."
            raise AccessDenied(reason, _DENIED_CODE).of_kind(DenialKind.UNKNOWN_ACCOUNT)

    def authenticate(self, user: User, peer: Peer, command: Command) -> None:
        """Make the user the peer's principal. Raises: AccessDenied, it did not sign the request, or is switched off."""
        peer.principal = None
        if not user.key.has_signed(command.ext_fields(), command.body):
            reason = f"check signature failed. User:{user.access_key}"
            raise AccessDenied(reason, _DENIED_CODE).of_kind(DenialKind.WRONG_SIGNATURE)
        if not user.is_enabled:
            raise AccessDenied(f"User:{user.access_key} is disabled.", _DENIED_CODE).of_kind(DenialKind.UNKNOWN_ACCOUNT)
        peer.principal = user

    def authorise(self, user: User, peer: Peer, row: Row, header: Request[Any], body: bytes) -> None:
        """Do nothing if the user may do this. Raises: AccessDenied."""
        if user.is_admin or int(row.code) in self._rules.authorization_codes:
            return
        source = peer.host[:-PORT_BYTES]
        if row.code in _SUPER_USER_CODES:
            raise _denial(user, self._cluster, peer).of_kind(DenialKind.NEEDS_ADMIN)
        if row.access in ADMINISTRATORS:
            action, resources = self._administrator_action(row, header)
            for resource in resources:
                if not user.may_do(action, resource, source):
                    raise _denial(user, resource, peer)
            return
        alternative = _ALTERNATIVE_ACTIONS.get(row.code)
        for name, perms in permissions.needs(row, header, body, self._topic_at):
            resource = resource_of(name)
            if not user.may(name, perms, source) and not (alternative and user.may_do(alternative, resource, source)):
                raise _denial(user, resource, peer)

    def _administrator_action(self, row: Row, header: Request[Any]) -> tuple[Action, list[Resource]]:
        action = _ACTIONS_ON_NAMED.get(row.code)
        if action is not None:
            topic, group = [getattr(header, name) if name else None for name in (row.topic, row.group)]
            resources = [resource_of(topic)] if topic else []
            resources += [Resource(ResourceKind.GROUP, group)] if group else []
            if resources:
                return action, resources
        return Action.GET if row.code in _READING_CODES else Action.UPDATE, [self._cluster]


def _denial(user: User, resource: Resource, peer: Peer) -> AccessDenied:
    source = peer.address.rpartition(":")[0]
    return AccessDenied(
        f"User:{user.access_key} has no permission to access {resource} from {source}, no matched policies or the "
        "decision is deny.",
        _DENIED_CODE,
    )
