"""Request headers, continued: what a name server is asked. See `headers.py` for the rules."""

from __future__ import annotations

from typing import Any, Final

from sparrowmq.errors import RemoteError, WrongServer
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.wire.header import Header, Long, NoFields, Request, request

# Routes


@request(RequestCode.GET_ROUTEINFO_BY_TOPIC)
class GetRoute(Request[NoFields]):
    """Which brokers have this topic? The answer's body is a `TopicRoute`; code 17 if none has."""

    topic: str
    accept_standard_json_only: bool | None = None


@request(RequestCode.GET_BROKER_CLUSTER_INFO)
class GetBrokerCluster(Request[NoFields]):
    """All clusters and brokers. The answer's body is a `ClusterTable`."""


@request(RequestCode.GET_BROKER_MEMBER_GROUP)
class GetBrokerMembers(Request[NoFields]):
    """The brokers of one name, as `BrokerMembers`; none if there is no such name.

    Apache's brokers of 5.x with enableSlaveActingMaster ask this, before they go online and each second.
    """

    cluster_name: str
    broker_name: str


@request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
class GetAllTopicListFromNameserver(Request[NoFields]):
    """The names of all topics, as a `TopicList`."""


@request(RequestCode.GET_TOPICS_BY_CLUSTER)
class GetTopicsByCluster(Request[NoFields]):
    """The names of a cluster's topics, as a `TopicList`."""

    cluster: str


@request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
class GetSystemTopicListFromNs(Request[NoFields]):
    """The names of clusters and brokers, which are topics too, as a `TopicList` with one broker's address."""


@request(RequestCode.DELETE_TOPIC_IN_NAMESRV)
class DeleteTopicInNamesrv(Request[NoFields]):
    """Forget a topic's route, in one cluster or in all."""

    topic: str
    cluster_name: str | None = None


class RegisterBrokerReply(Header):
    """The addresses of a slave's master; the body is a `KVTable` of the ordered topics."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@request(RequestCode.REGISTER_BROKER)
class RegisterBroker(Request[RegisterBrokerReply]):
    """A broker announces itself. The body is a `RegisterBrokerBody`, perhaps compressed."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    compressed: bool = False
    body_crc32: Long = 0
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None


@request(RequestCode.UNREGISTER_BROKER)
class UnregisterBroker(Request[NoFields]):
    """A broker leaves."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionReply(Header):
    """The body is the name server's `DataVersion`."""

    changed: bool


@request(RequestCode.QUERY_DATA_VERSION)
class QueryDataVersion(Request[QueryDataVersionReply]):
    """Does the name server know this version of the broker's topics? The body is a `DataVersion`."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class WipeWritePermOfBrokerReply(Header):
    wipe_topic_count: Long


@request(RequestCode.WIPE_WRITE_PERM_OF_BROKER)
class WipeWritePermOfBroker(Request[WipeWritePermOfBrokerReply]):
    """Let no producer find the broker, so that it can be emptied and stopped."""

    broker_name: str


class AddWritePermOfBrokerReply(Header):
    add_topic_count: Long


@request(RequestCode.ADD_WRITE_PERM_OF_BROKER)
class AddWritePermOfBroker(Request[AddWritePermOfBrokerReply]):
    """Let producers find the broker again."""

    broker_name: str


@request(RequestCode.PUT_KV_CONFIG)
class PutKVConfig(Request[NoFields]):
    """Keep a value by namespace and key."""

    namespace: str
    key: str
    value: str


class GetKVConfigReply(Header):
    value: str | None = None


@request(RequestCode.GET_KV_CONFIG)
class GetKVConfig(Request[GetKVConfigReply]):
    """The value of a key; code 22 if there is none."""

    namespace: str
    key: str


@request(RequestCode.DELETE_KV_CONFIG)
class DeleteKVConfig(Request[NoFields]):
    """Forget the value of a key."""

    namespace: str
    key: str


@request(RequestCode.GET_KVLIST_BY_NAMESPACE)
class GetKVListByNamespace(Request[NoFields]):
    """All values of a namespace, as a `KVTable`; code 22 if there are none."""

    namespace: str


@request(RequestCode.UPDATE_NAMESRV_CONFIG)
class UpdateNamesrvConfig(Request[NoFields]):
    """Change some of the name server's settings; the body is properties text."""


@request(RequestCode.GET_NAMESRV_CONFIG)
class GetNamesrvConfig(Request[NoFields]):
    """The name server's settings, as properties text."""


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
