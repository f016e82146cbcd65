"""The caller of a method: what the metadata of its call says, and its names of topics and groups.

x-mq-client-id       unique for each client; demanded
x-mq-language        such as PYTHON
authorization        the signature (auth/)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from sparrowmq.errors import InvalidName
from sparrowmq.protocol.names import check_group, check_new_topic, with_namespace
from sparrowmq.proxy.statuses import Status, refused

CLIENT_ID: Final = "x-mq-client-id"
LANGUAGE: Final = "x-mq-language"
MOST_CLIENT_ID: Final = 255


class Call(Protocol):
    """A call, as the server sees it (http2/).

    Attributes:
        metadata: by lower-case name.
        time_left_s: until the caller's deadline; None without one.
        method: its name, without the service.
    """

    @property
    def metadata(self) -> Mapping[str, str]: ...

    @property
    def peer(self) -> Any: ...

    @property
    def time_left_s(self) -> float | None: ...

    @property
    def method(self) -> str: ...


class Caller(NamedTuple):
    """A client.

    Attributes:
        address: `host:port`.
    """

    client_id: str
    language: str
    address: str
    call: Call


def caller_of(call: Call) -> Caller:
    """The client that makes a call. Raises: RemoteError, it does not say which client it is."""
    client_id = call.metadata.get(CLIENT_ID, "")
    if not client_id:
        raise refused(
            Status.CLIENT_ID_REQUIRED, f"the metadata {CLIENT_ID} is absent; give each client its own id"
        )
    if len(client_id) > MOST_CLIENT_ID:
        raise refused(
            Status.BAD_REQUEST, f"the client id has {len(client_id)} characters, {MOST_CLIENT_ID} are allowed"
        )
    return Caller(client_id, call.metadata.get(LANGUAGE, ""), _address(call.peer), call)


def topic_of(resource: Any) -> str:
    """The full name of a topic. Raises: RemoteError, it is no name that a client may use."""
    name = with_namespace(resource.resource_namespace, resource.name)
    try:
        return check_new_topic(name)
    except InvalidName as error:
        raise refused(Status.ILLEGAL_TOPIC, str(error)) from None


def consumer_group_of(resource: Any) -> str:
    """The full name of a consumer group. Raises: RemoteError, it is no name."""
    try:
        return check_group(with_namespace(resource.resource_namespace, resource.name))
    except InvalidName as error:
        raise refused(Status.ILLEGAL_CONSUMER_GROUP, str(error)) from None


def _address(peer: Any) -> str:
    host, port = (peer[0], peer[1]) if isinstance(peer, tuple) else (peer.host, peer.port)
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
