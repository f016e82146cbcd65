"""Failures as Java's tool prints them on stderr: the classes and texts of its exceptions, without the frames.

    org.apache.rocketmq.tools.command.SubCommandException: TopicRouteSubCommand command failed
    Caused by: org.apache.rocketmq.client.exception.MQClientException: CODE: 17  DESC: No topic route info in ...
    See http://rocketmq.apache.org/docs/faq/ for further details.

Source: MQClientException, MQBrokerException, FAQUrl and MQClientAPIImpl, Java 4.9.8.
"""

from __future__ import annotations

from typing import Any, Final

from sparrowmq.errors import (
    BrokerUnreachable,
    ConnectionClosed,
    NameServerUnreachable,
    RemoteError,
    RequestTimeout,
    SparrowError,
)
from sparrowmq.protocol.requests import admin_headers as admin
from sparrowmq.protocol.requests import headers as client
from sparrowmq.protocol.requests import user_headers as user
from sparrowmq.protocol.wire.header import Request

_CLIENT: Final = "org.apache.rocketmq.client.exception"
_REMOTING: Final = "org.apache.rocketmq.remoting.exception"
_FAQ: Final = "http://rocketmq.apache.org/docs/faq/"
FURTHER: Final = f"\nSee {_FAQ} for further details."

# What a broker refuses of these is an MQBrokerException, which names the broker; of all others an MQClientException.
OF_BROKER: Final = frozenset(
    {
        admin.GetBrokerClusterAcl,
        admin.GetConsumeStats,
        admin.GetConsumerConnectionList,
        admin.QueryTopicConsumeByWho,
        admin.GetBrokerRuntime,
        admin.GetBrokerConfig,
        admin.UpdateBrokerConfig,
        admin.GetProducerConnectionList,
        admin.GetAllProducers,
        admin.GetTopicStats,
        admin.GetAllSubscriptionGroup,
        admin.GetAllTopicConfig,
        client.ViewMessage,
        client.GetMaxOffset,
        client.GetMinOffset,
        client.SearchOffset,
        client.UpdateConsumerOffset,
        client.PullMessage,
        client.SendMessage,
        client.SendMessageV2,
        user.CreateUser,
        user.UpdateUser,
        user.DeleteUser,
        user.GetUser,
        user.ListUsers,
        user.CreateAcl,
        user.UpdateAcl,
        user.DeleteAcl,
        user.GetAcl,
        user.ListAcls,
    }
)


class Failure(Exception):
    """An exception of Java.

    Attributes:
        kind: the exception's class.
        code: the response code; -1 if there is none.
        remark: the text without the code and hints.
    """

    def __init__(self, kind: str, text: str | None = None, code: int = -1, remark: str = "") -> None:
        super().__init__(kind if text is None else f"{kind}: {text}")
        self.kind = kind
        self.code = code
        self.remark = remark

    @property
    def is_of_broker(self) -> bool:
        """Whether a broker refused, and not a name server or the client."""
        return self.kind.endswith("MQBrokerException")


def client_failure(text: str, code: int | None = None) -> Failure:
    """MQClientException, with a response code or without."""
    said = text if code is None else f"CODE: {code}  DESC: {text}"
    return Failure(f"{_CLIENT}.MQClientException", _with_hint(said), -1 if code is None else code, text)


def broker_failure(error: RemoteError, address: str) -> Failure:
    """MQBrokerException."""
    remark = error.remark or "null"
    said = f"CODE: {int(error.code)}  DESC: {remark} BROKER: {address}"
    return Failure(f"{_CLIENT}.MQBrokerException", _with_hint(said), int(error.code), remark)


def no_route(topic: str) -> Failure:
    return client_failure(f"No topic route info in name server for the topic: {topic}{FURTHER}", 17)


def of(error: SparrowError, request: Request[Any] | None = None, address: str = "") -> Failure:
    """Return the exception that Java throws for an error of ours."""
    if isinstance(error, RemoteError):
        if type(request) in OF_BROKER:
            return broker_failure(error, address)
        return client_failure(error.remark or "null", int(error.code))
    if isinstance(error, RequestTimeout):
        text = f"wait response on the channel <{error.address}> timeout, {round(error.timeout_s * 1000)}(ms)"
        return Failure(f"{_REMOTING}.RemotingTimeoutException", text)
    if isinstance(error, ConnectionClosed):
        return Failure(f"{_REMOTING}.RemotingSendRequestException", f"send request to <{error.address}> failed")
    if isinstance(error, NameServerUnreachable):
        return Failure(f"{_REMOTING}.RemotingConnectException", f"connect to [{error.addresses}] failed")
    if isinstance(error, BrokerUnreachable):
        return Failure(f"{_REMOTING}.RemotingConnectException", f"connect to {error.address} failed")
    return client_failure(str(error))


def number_failure(text: str) -> Failure:
    """The exception for a word that should be a number."""
    return Failure("java.lang.NumberFormatException", f'For input string: "{text}"')


def null_failure(what: str) -> Failure:
    """The NullPointerException that Java throws; unlike Java with the reason."""
    return Failure("java.lang.NullPointerException", what)


def _with_hint(text: str) -> str:
    if "\nSee " in text:
        return text
    return f"{text}\nFor more information, please visit the url, {_FAQ}"
