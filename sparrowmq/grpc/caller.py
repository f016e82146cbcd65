"""The caller of a method: what the metadata of its call says, and its names of topics and groups.

x-mq-client-id       unique for each client; demanded
x-mq-language        such as PYTHON
authorization        the signature (auth/)
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sparrowmq.errors import InvalidName
from sparrowmq.grpc.brokers import Brokers, Cluster
from sparrowmq.grpc.statuses import Status, refusal
from sparrowmq.http2.calls import Call
from sparrowmq.protocol.names import check_group, check_new_topic, with_namespace

CLIENT_ID: Final = "x-mq-client-id"
LANGUAGE: Final = "x-mq-language"
MAX_CLIENT_ID_LENGTH: Final = 255


class Caller(NamedTuple):
    """A client. Its id has its account in it, so that no client can take the place of another account's."""

    client_id: str
    language: str
    call: Call
    brokers: Brokers

    @property
    def address(self) -> str:
        return str(self.call.peer)


def caller_of(call: Call, cluster: Cluster) -> Caller:
    """The client that makes a call. Raises: RemoteError, the client names no valid id; AccessDenied."""
    client_id = call.metadata.get(CLIENT_ID, "")
    if not client_id:
        raise refusal(Status.CLIENT_ID_REQUIRED, f"the metadata {CLIENT_ID} is absent; give each client its own id")
    if len(client_id) > MAX_CLIENT_ID_LENGTH:
        raise refusal(
            Status.BAD_REQUEST, f"the client id has {len(client_id)} characters, {MAX_CLIENT_ID_LENGTH} are allowed"
        )
    brokers = cluster.brokers_for(call, client_id)
    if not call.peer.is_known():
        call.peer.is_known = lambda: brokers.is_known
    language = call.metadata.get(LANGUAGE, "")
    return Caller(client_id_of(brokers.account, client_id), language, call, brokers)


def client_id_of(account: str, client_id: str) -> str:
    """The id of a client among those of all accounts. No header contains the separator."""
    return f"{client_id}\n{account}" if account else client_id


def account_of(client_id: str) -> str:
    return client_id.partition("\n")[2]


def topic_of(resource: Any) -> str:
    """The full name of a topic. Raises: RemoteError, it is no name that a client may use."""
    name = with_namespace(resource.resource_namespace, resource.name)
    try:
        return check_new_topic(name)
    except InvalidName as error:
        raise refusal(Status.ILLEGAL_TOPIC, str(error)) from None


def consumer_group_of(resource: Any) -> str:
    """The full name of a consumer group. Raises: RemoteError, it is no name."""
    try:
        return check_group(with_namespace(resource.resource_namespace, resource.name))
    except InvalidName as error:
        raise refusal(Status.ILLEGAL_CONSUMER_GROUP, str(error)) from None
