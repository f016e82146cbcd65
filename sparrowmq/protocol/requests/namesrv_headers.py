"""Request headers, continued: what a name server is asked. See `headers.py` for the rules."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from sparrowmq.errors import RemoteError, WrongServer
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.wire.header import Header, Long, NoFields, Request

# Routes -------------------------------------------------------------------------------------------------------------


class GetRoute(Request[NoFields]):
    """Which brokers have this topic? The answer's body is a `TopicRoute`; code 17 if none has."""

    code: ClassVar[int] = RequestCode.GET_ROUTEINFO_BY_TOPIC

    topic: str
    accept_standard_json_only: bool | None = None


class GetBrokerCluster(Request[NoFields]):
    """All clusters and brokers. The answer's body is a `ClusterTable`."""

    code: ClassVar[int] = RequestCode.GET_BROKER_CLUSTER_INFO


class GetAllTopicListFromNameserver(Request[NoFields]):
    """The names of all topics, as a `TopicList`."""

    code: ClassVar[int] = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER


class GetTopicsByCluster(Request[NoFields]):
    """The names of a cluster's topics, as a `TopicList`."""

    code: ClassVar[int] = RequestCode.GET_TOPICS_BY_CLUSTER

    cluster: str


class GetSystemTopicListFromNs(Request[NoFields]):
    """The names of clusters and brokers, which are topics too, as a `TopicList` with one broker's address."""

    code: ClassVar[int] = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS


class DeleteTopicInNamesrv(Request[NoFields]):
    """Forget a topic's route, in one cluster or in all."""

    code: ClassVar[int] = RequestCode.DELETE_TOPIC_IN_NAMESRV

    topic: str
    cluster_name: str | None = None


# Brokers ------------------------------------------------------------------------------------------------------------


class RegisterBrokerReply(Header):
    """The addresses of a slave's master; the body is a `KVTable` of the ordered topics."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class RegisterBroker(Request[RegisterBrokerReply]):
    """A broker announces itself. The body is a `RegisterBrokerBody`, perhaps compressed."""

    code: ClassVar[int] = RequestCode.REGISTER_BROKER

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    compressed: bool = False
    body_crc32: Long = 0
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None


class UnregisterBroker(Request[NoFields]):
    """A broker leaves."""

    code: ClassVar[int] = RequestCode.UNREGISTER_BROKER

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionReply(Header):
    """The body is the name server's `DataVersion`."""

    changed: bool


class QueryDataVersion(Request[QueryDataVersionReply]):
    """Does the name server know this version of the broker's topics? The body is a `DataVersion`."""

    code: ClassVar[int] = RequestCode.QUERY_DATA_VERSION

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class WipeWritePermOfBrokerReply(Header):
    wipe_topic_count: Long


class WipeWritePermOfBroker(Request[WipeWritePermOfBrokerReply]):
    """Let no producer find the broker, so that it can be emptied and stopped."""

    code: ClassVar[int] = RequestCode.WIPE_WRITE_PERM_OF_BROKER

    broker_name: str


class AddWritePermOfBrokerReply(Header):
    add_topic_count: Long


class AddWritePermOfBroker(Request[AddWritePermOfBrokerReply]):
    """Let producers find the broker again."""

    code: ClassVar[int] = RequestCode.ADD_WRITE_PERM_OF_BROKER

    broker_name: str


# Settings -----------------------------------------------------------------------------------------------------------


class PutKVConfig(Request[NoFields]):
    """Keep a value by namespace and key."""

    code: ClassVar[int] = RequestCode.PUT_KV_CONFIG

    namespace: str
    key: str
    value: str


class GetKVConfigReply(Header):
    value: str | None = None


class GetKVConfig(Request[GetKVConfigReply]):
    """The value of a key; code 22 if there is none."""

    code: ClassVar[int] = RequestCode.GET_KV_CONFIG

    namespace: str
    key: str


class DeleteKVConfig(Request[NoFields]):
    """Forget the value of a key."""

    code: ClassVar[int] = RequestCode.DELETE_KV_CONFIG

    namespace: str
    key: str


class GetKVListByNamespace(Request[NoFields]):
    """All values of a namespace, as a `KVTable`; code 22 if there are none."""

    code: ClassVar[int] = RequestCode.GET_KVLIST_BY_NAMESPACE

    namespace: str


class UpdateNamesrvConfig(Request[NoFields]):
    """Change some of the name server's settings; the body is properties text."""

    code: ClassVar[int] = RequestCode.UPDATE_NAMESRV_CONFIG


class GetNamesrvConfig(Request[NoFields]):
    """The name server's settings, as properties text."""

    code: ClassVar[int] = RequestCode.GET_NAMESRV_CONFIG


# Name servers of all versions answer these.
_OF_ALL: Final = frozenset(
    {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    }
)


def if_broker(error: RemoteError, request: Request[Any], address: str) -> RemoteError:
    """The error of a request to a name server: WrongServer if it shows that a broker is at the address."""
    if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and request.code in _OF_ALL:
        return WrongServer(address, "name server", error.remark)
    return error
