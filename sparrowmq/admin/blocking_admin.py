"""`Admin` without `async`: each call runs in the thread of an event loop, as those of `blocking_client` do."""

from __future__ import annotations

from collections.abc import Sequence

from sparrowmq.admin.admin import TIMEOUT_S, Admin
from sparrowmq.client.blocking_client import Context, blocking
from sparrowmq.client.cluster.credentials import Credentials, Tls
from sparrowmq.client.loop_thread import Callbacks, LoopThread


class SyncAdmin(Context[Admin]):
    """The blocking twin of `Admin`."""

    brokers = blocking(Admin.brokers)
    standings = blocking(Admin.standings)
    clusters = blocking(Admin.clusters)
    broker_figures = blocking(Admin.broker_figures)
    broker_settings = blocking(Admin.broker_settings)
    change_broker = blocking(Admin.change_broker)
    behind = blocking(Admin.behind)
    drain = blocking(Admin.drain)
    undrain = blocking(Admin.undrain)
    forget_broker = blocking(Admin.forget_broker)
    hand_over = blocking(Admin.hand_over)
    elect = blocking(Admin.elect)
    topics = blocking(Admin.topics)
    topic = blocking(Admin.topic)
    create_topic = blocking(Admin.create_topic)
    change_topic = blocking(Admin.change_topic)
    delete_topic = blocking(Admin.delete_topic)
    groups = blocking(Admin.groups)
    group = blocking(Admin.group)
    create_group = blocking(Admin.create_group)
    change_group = blocking(Admin.change_group)
    delete_group = blocking(Admin.delete_group)
    members = blocking(Admin.members)
    examine = blocking(Admin.examine)
    lag = blocking(Admin.lag)
    reset = blocking(Admin.reset)
    dead_letters = blocking(Admin.dead_letters)
    resend = blocking(Admin.resend)
    replay = blocking(Admin.replay)
    message = blocking(Admin.message)
    find = blocking(Admin.find)
    trace = blocking(Admin.trace)


def admin(
    namesrv: str | Sequence[str] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    credentials: Credentials | None = None,
    tls: Tls = False,
    namespace: str = "",
) -> SyncAdmin:
    """An operator's client of a cluster, for `with`. Arguments and errors are those of `Admin`."""
    inner = Admin(namesrv, timeout_s=timeout_s, credentials=credentials, tls=tls, namespace=namespace)
    return SyncAdmin(inner, LoopThread(Callbacks()), owns_thread=True)
