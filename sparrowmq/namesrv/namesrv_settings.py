"""The settings of a name server: Apache's keys, those that it ignores included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from sparrowmq.core.logs import LogSettings
from sparrowmq.metrics.metrics_settings import MetricsSettings
from sparrowmq.remoting.tls.tls_settings import ServerTlsSettings
from sparrowmq.settings.setting_kinds import BOOLEAN, PATH, TEXT, integer
from sparrowmq.settings.settings import setting
from sparrowmq.settings.user_settings import UserSettings

_ONE_LOOP = "one event loop serves all connections; there is no pool of threads to size"
_SOCKETS = "sockets have the operating system's own sizes"


@dataclass(frozen=True, kw_only=True)
class NamesrvSettings(UserSettings, ServerTlsSettings, MetricsSettings, LogSettings):
    ACCEPTED: ClassVar[Mapping[str, str]] = {
        "configStorePath": "settings are read from the file given with -c and never written",
        "productEnvName": "it chose among Alibaba's own environments",
        "clusterTest": "it chose among Alibaba's own environments",
        "serverWorkerThreads": _ONE_LOOP,
        "serverCallbackExecutorThreads": _ONE_LOOP,
        "serverSelectorThreads": _ONE_LOOP,
        "defaultThreadPoolNums": _ONE_LOOP,
        "clientRequestThreadPoolNums": _ONE_LOOP,
        "defaultThreadPoolQueueCapacity": _ONE_LOOP,
        "clientRequestThreadPoolQueueCapacity": _ONE_LOOP,
        "unRegisterBrokerQueueCapacity": _ONE_LOOP,
        "serverOnewaySemaphoreValue": "a peer's requests are limited by what it leaves unread",
        "serverAsyncSemaphoreValue": "a peer's requests are limited by what it leaves unread",
        "serverChannelMaxIdleTimeSeconds": "a silent connection is closed after 120 s, Apache's own default",
        "serverSocketSndBufSize": _SOCKETS,
        "serverSocketRcvBufSize": _SOCKETS,
        "serverPooledByteBufAllocatorEnable": "there is no Netty here",
        "useEpollNativeSelector": "the event loop always uses epoll where there is one",
        "scanNotActiveBrokerInterval": "silent brokers are looked for every 10 s",
        "returnOrderTopicConfigToBroker": "brokers always get the order topics",
        "supportActingMaster": "a slave never acts as master here",
        "deleteTopicWithBrokerRegistration": "topics leave by DELETE_TOPIC_IN_NAMESRV, or with their last broker",
    }

    port: int = setting("listenPort", 9876, integer(0, 65535))
    """Port that clients and brokers connect to. 0 takes a free port."""
    bind_address: str = setting("bindAddress", "127.0.0.1", TEXT)
    """Address to listen on."""
    insecure: bool = setting("insecure", False, BOOLEAN)
    """Allow other machines to connect without access control."""
    kv_path: Path = setting("kvConfigPath", Path("~/namesrv/kvConfig.json").expanduser(), PATH)
    """File for the key-value configuration."""
    acl: bool = setting("aclEnable", False, BOOLEAN)
    """Accept registrations of accounts for brokers only, changes of administrators, and questions of accounts."""
    home: Path | None = setting("rocketmqHome", None, PATH)
    """Folder whose conf/plain_acl.yml and conf/acl contain the accounts."""
    acl_file: Path | None = setting("aclFile", None, PATH)
    """File that contains all accounts. Replaces the files below rocketmqHome."""
    broker_addresses: str = setting("aclBrokerAddresses", "", TEXT)
    """Addresses of brokers that register without an account, such as Apache's. Example: 10.0.0.7,10.0.1.*."""
    public_routes: bool = setting("aclPublicRoutes", False, BOOLEAN)
    """Let clients without an account ask for routes and topics."""
    users_file: Path | None = setting("usersFile", None, PATH)
    """File of users and policies, with authenticationEnabled=true: a broker's config/users.json, or a copy."""
    audit_log: bool = setting("auditLog", True, BOOLEAN)
    """Note requests for administrators, and denials, in a file. Only with access control."""
    audit_path: Path | None = setting("auditLogPath", None, PATH)
    """File of the audit log. By default audit.log beside kvConfigPath."""
    order_messages: bool = setting("orderMessageEnable", True, BOOLEAN, live=True)
    """Tell clients the queues of ordered topics. Java's default is false: there, ordered topics need this setting."""

    @property
    def audit_file(self) -> Path:
        return self.audit_path or self.kv_path.with_name("audit.log")

    @property
    def checks_access(self) -> bool:
        return self.acl or self.authentication
