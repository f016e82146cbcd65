"""THE TABLE: every request of the protocol, who serves it, what access it needs, or why it is not served yet.

From these rows come the dispatch, the access check, the page `docs/understand/requests.md`, and the tests that every
code has an answer. A new request is a header, a row and a handler.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, Flag
from typing import Any, Final

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.requests import admin_headers as admin
from sparrowmq.protocol.requests import headers as client
from sparrowmq.protocol.requests import namesrv_headers as namesrv
from sparrowmq.protocol.requests import pop_headers as pop
from sparrowmq.protocol.requests import user_headers as user
from sparrowmq.protocol.wire.header import Header, Request

# The names of the fields. Producer groups do not count: a client that may write to the topic may use any of them.
TOPIC_FIELDS: Final = ("topic",)
GROUP_FIELDS: Final = ("consumer_group", "group", "group_name")


class Role(Flag):
    """The kind of server that handles a request."""

    NOBODY = 0
    NAMESRV = 1
    BROKER = 2
    CLIENT = 4


class Access(Enum):
    """The access that a caller needs."""

    READ = "read"  # consume the topic, or act for the group, that the request names
    WRITE = "write"  # send to the topic
    CLIENT = "client"  # be known, nothing more
    ADMIN = "admin"  # change or see what belongs to others
    CLUSTER = "cluster"  # be a server of this cluster


@dataclass(frozen=True, slots=True)
class Row:
    """One request. `unserved` says why no server handles it yet; such a row may lack a header."""

    code: RequestCode
    header: type[Request[Any]] | None
    served_by: Role
    # The access to the topic and the group in the header fields `topic` and `group`; "" if there is no such field.
    # `auth/permissions.py` knows names in bodies, such as a heartbeat's groups.
    access: Access
    unserved: str = ""
    topic: str = ""
    group: str = ""

    @property
    def name(self) -> str:
        return self.code.name

    @property
    def reply(self) -> type[Header] | None:
        return self.header.Reply if self.header else None


def _served(role: Role, access: Access, *headers: type[Request[Any]]) -> Iterator[Row]:
    for header in headers:
        fields = header.__struct_fields__
        topic = next((name for name in TOPIC_FIELDS if name in fields), "")
        group = next((name for name in GROUP_FIELDS if name in fields), "")
        yield Row(RequestCode(header.code), header, role, access, topic=topic, group=group)


def _unserved(reason: str, *requests: RequestCode | type[Request[Any]]) -> Iterator[Row]:
    for request in requests:
        if isinstance(request, RequestCode):
            yield Row(request, None, Role.NOBODY, Access.ADMIN, reason)
        else:
            yield Row(RequestCode(request.code), request, Role.NOBODY, Access.ADMIN, reason)


_SERVED = (
    *_served(
        Role.BROKER,
        Access.WRITE,
        client.SendMessage,
        client.SendMessageV2,
        client.SendBatchMessage,
        client.SendReply,
        client.SendReplyV2,
        client.RecallMessage,
        client.StageBatch,
        client.CopyBatch,
    ),
    *_served(
        Role.BROKER,
        Access.READ,
        client.PullMessage,
        client.LitePullMessage,
        client.QueryMessage,
        client.ViewMessage,
        client.QueryConsumerOffset,
        client.UpdateConsumerOffset,
        client.ConsumerSendMsgBack,
        client.GetConsumerListByGroup,
        client.LockBatchMq,
        client.UnlockBatchMq,
        pop.PopMessage,
        pop.AckMessage,
        pop.BatchAckMessage,
        pop.ChangeInvisibleTime,
        pop.PeekMessage,
        pop.Notification,
        pop.Polling,
        pop.QueryAssignment,
    ),
    *_served(
        Role.BROKER,
        Access.CLIENT,
        client.SearchOffset,
        client.GetMaxOffset,
        client.GetMinOffset,
        client.GetEarliestMsgStoretime,
        client.HeartBeat,
        client.UnregisterClient,
        client.CheckClientConfig,
        # It names a half message, whose producer was allowed to send it.
        client.EndTransaction,
        # Likewise: what it publishes, its writer was allowed to stage.
        client.CommitBatch,
    ),
    *_served(Role.BROKER | Role.NAMESRV, Access.ADMIN, admin.GetDiagnosis),
    *_served(
        Role.BROKER,
        Access.ADMIN,
        client.ResumeCheckHalfMessage,
        pop.SetRequestMode,
        admin.UpdateAndCreateTopic,
        admin.UpdateAndCreateTopicList,
        admin.GetTopicConfig,
        admin.DeleteTopic,
        admin.GetTopicStats,
        admin.GetSystemTopicListFromBroker,
        admin.QueryTopicConsumeByWho,
        admin.UpdateAndCreateSubscriptionGroup,
        admin.UpdateAndCreateGroupList,
        admin.QueryTopicsByConsumer,
        admin.QuerySubscriptionByConsumer,
        admin.GetGroupConfig,
        admin.DeleteSubscriptionGroup,
        admin.GetConsumeStats,
        admin.ResetOffset,
        admin.GetConsumerConnectionList,
        admin.GetProducerConnectionList,
        admin.GetBrokerConfig,
        admin.UpdateBrokerConfig,
        admin.GetBrokerRuntime,
        admin.GetHaStatus,
        admin.HandOverLead,
        admin.ElectMember,
        admin.RestartBroker,
        admin.InvokeGetConsumerStatus,
        admin.CloneGroupOffset,
        admin.QueryConsumeTimeSpan,
        admin.QueryCorrectionOffset,
        admin.GetBrokerConsumeStats,
        admin.GetAllProducers,
        admin.ViewBrokerStats,
        admin.QueryConsumeQueue,
        admin.CleanExpiredConsumeQueue,
        admin.CleanUnusedTopic,
        admin.DeleteExpiredCommitLog,
        admin.UpdateAndCreateAclConfig,
        admin.DeleteAclConfig,
        admin.GetBrokerClusterAcl,
        admin.UpdateGlobalWhiteAddrsConfig,
        admin.GetBrokerClusterAclConfig,
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
    ),
    *_served(
        Role.BROKER,
        Access.CLUSTER,
        admin.GetAllTopicConfig,
        admin.GetAllSubscriptionGroup,
        admin.GetAllConsumerOffset,
        admin.GetAllDelayOffset,
        pop.GetAllRequestModes,
    ),
    # A broker hands these on to the client that they name.
    *_served(Role.BROKER | Role.CLIENT, Access.ADMIN, client.GetConsumerRunning, client.ConsumeMessageDirectly),
    *_served(
        Role.CLIENT,
        Access.CLUSTER,
        client.NotifyConsumerIdsChanged,
        client.ResetConsumerClientOffset,
        client.GetConsumerStatus,
        client.PushReply,
        client.CheckTransactionState,
    ),
    *_served(
        Role.NAMESRV,
        Access.CLIENT,
        namesrv.GetRoute,
        namesrv.GetBrokerCluster,
        namesrv.GetBrokerMembers,
        namesrv.GetAllTopicListFromNameserver,
        namesrv.GetTopicsByCluster,
        namesrv.GetSystemTopicListFromNs,
        namesrv.GetKVConfig,
        namesrv.GetKVListByNamespace,
    ),
    *_served(
        Role.NAMESRV,
        Access.ADMIN,
        namesrv.DeleteTopicInNamesrv,
        namesrv.WipeWritePermOfBroker,
        namesrv.AddWritePermOfBroker,
        namesrv.PutKVConfig,
        namesrv.DeleteKVConfig,
        namesrv.GetNamesrvConfig,
        namesrv.UpdateNamesrvConfig,
    ),
    *_served(Role.NAMESRV, Access.CLUSTER, namesrv.RegisterBroker, namesrv.UnregisterBroker, namesrv.QueryDataVersion),
)

_UNSERVED = (
    *_unserved(
        "refused by design: how files are read is set in the server's own file, never over the network",
        RequestCode.UPDATE_CONTROLLER_CONFIG,
        RequestCode.SET_COMMITLOG_READ_MODE,
    ),
    *_unserved(
        "never: our timers lie in no wheel of Java's, and have neither its checkpoint nor its metrics",
        RequestCode.GET_TIMER_CHECK_POINT,
        RequestCode.GET_TIMER_METRICS,
    ),
    *_unserved(
        "never: forbids one topic to a group, as a policy does for users; only Java's admin API sends this, and no "
        "command of mqadmin",
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    ),
    *_unserved(
        "not yet: 5.x asks this of brokers that count their replicas and change roles by themselves",
        RequestCode.RESET_MASTER_FLUSH_OFFSET,
        RequestCode.EXCHANGE_BROKER_HA_INFO,
        RequestCode.GET_BROKER_EPOCH_CACHE,
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
        RequestCode.BROKER_HEARTBEAT,
    ),
    *_unserved(
        "not yet: needs topics whose queues move between brokers (5.x static topics)",
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
    ),
    *_unserved(
        "not yet: needs units, which only very large sites use",
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    ),
    *_unserved(
        "never: there is no RocksDB, no cold storage and no broker container here",
        RequestCode.SWITCH_TIMER_ENGINE,
        RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
        RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON,
        RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
        RequestCode.ADD_BROKER,
        RequestCode.REMOVE_BROKER,
    ),
    *_unserved(
        "never: etcd elects the leader, so there is no controller",
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
        RequestCode.CONTROLLER_ELECT_MASTER,
        RequestCode.CONTROLLER_REGISTER_BROKER,
        RequestCode.CONTROLLER_GET_REPLICA_INFO,
        RequestCode.CONTROLLER_GET_METADATA_INFO,
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
        RequestCode.GET_CONTROLLER_CONFIG,
        RequestCode.CLEAN_BROKER_DATA,
        RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
        RequestCode.CONTROLLER_APPLY_BROKER_ID,
        RequestCode.BROKER_CLOSE_CHANNEL_REQUEST,
        RequestCode.CHECK_NOT_ACTIVE_BROKER_REQUEST,
        RequestCode.GET_BROKER_LIVE_INFO_REQUEST,
        RequestCode.GET_SYNC_STATE_DATA_REQUEST,
        RequestCode.RAFT_BROKER_HEART_BEAT_EVENT_REQUEST,
    ),
    *_unserved(
        "never: no client sends this request any more",
        RequestCode.POP_ROLLBACK,
        RequestCode.QUERY_BROKER_OFFSET,
        RequestCode.GET_TOPIC_CONFIG_LIST,
        RequestCode.GET_TOPIC_NAME_LIST,
        RequestCode.TRIGGER_DELETE_FILES,
        RequestCode.GET_CLIENT_CONFIG,
        RequestCode.SUSPEND_CONSUMER,
        RequestCode.RESUME_CONSUMER,
        RequestCode.RESET_CONSUMER_OFFSET_IN_CONSUMER,
        RequestCode.RESET_CONSUMER_OFFSET_IN_BROKER,
        RequestCode.ADJUST_CONSUMER_THREAD_POOL,
        RequestCode.WHO_CONSUME_THE_MESSAGE,
        RequestCode.REGISTER_FILTER_SERVER,
        RequestCode.REGISTER_MESSAGE_FILTER_CLASS,
    ),
)

ROWS: Final[tuple[Row, ...]] = tuple(sorted((*_SERVED, *_UNSERVED), key=lambda row: row.code))
BY_CODE: Final[dict[int, Row]] = {int(row.code): row for row in ROWS}
