"""Everything that the console changes, and who may; no other file of the console changes anything.

Each function returns an action for its subject: the role, the fields of the dialog, and the work. `layout/forms.py`
shows the dialog, checks the role when the action is carried out, and logs who did what.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sparrowmq.admin import catalogue
from sparrowmq.admin.catalogue import change_broker_settings, consume_directly
from sparrowmq.admin.groups import Group, GroupLag, ResetTo
from sparrowmq.admin.topics import TYPES, Topic
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.console.cluster_view import hidden
from sparrowmq.console.layout.forms import Action, Check, DialogForm, Field, Values, properties_in
from sparrowmq.console.layout.view import View
from sparrowmq.console.message_body import original_topic, parse_time, time_text
from sparrowmq.console.users import Role
from sparrowmq.core.digits import whole_number
from sparrowmq.core.safe_text import counted
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateAclConfig
from sparrowmq.protocol.requests.bodies import AccountList
from sparrowmq.protocol.requests.group_settings import LEVELS, text_of

_CLUSTER: Final = Field("cluster", "Cluster, if there are several")
_MAX_RETRIES: Final = "Maximum retries before dead letters"
_ORDERED: Final = "Deliver in order to consumers that pop, and to those of 5.x"
_RETRY_PAUSES: Final = Field(
    "retry_pauses", "Pauses before retries", value=LEVELS, hint="10s 1m 5m, or 5s..2h, or levels"
)
# Topics -------------------------------------------------------------------------------------------------------------

_QUEUES_EXPLAINED: Final = (
    "Each broker stores a topic's messages in this number of queues. One member of a group reads a queue at a time: "
    "the queues of all brokers together are the maximum number of members that can share the work. Messages of one "
    "queue are delivered in order. You can add queues at any time, and remove queues only in steps."
)
_PERMS: Final = {
    "rw": "rw: producers write, consumers read",
    "r": "r: consumers read, producers cannot write",
    "w": "w: producers write, consumers cannot read",
    "none": "none: no reads and no writes",
}


def send_message(topic: str) -> Action:
    async def run(view: View, form: DialogForm) -> str:
        values = form.values
        result = await view.cluster.client.send(
            topic,
            values["body"].encode(),
            tag=values["tag"] or None,
            keys=values["keys"].split(),
            properties=properties_in(values["properties"]),
            **({"delay": values["delay"]} if values["delay"] else {}),
        )
        return f"sent {result.msg_id} to {result.queue.broker_name}, queue {result.queue.queue_id}"

    return Action(
        "send message",
        Role.OPERATE,
        "Send",
        "send",
        run,
        topic,
        f"Send to {topic}",
        submit="Send",
        fields=(
            Field("body", "Body", "long text", is_logged=False),
            Field("tag", "Tag"),
            Field("keys", "Keys, separated by blanks"),
            Field("properties", "Properties: name=value, name=value", is_logged=False),
            Field("delay", "Deliver later: 10s, 5m, 2h"),
        ),
    )


def create_topic() -> Action:
    async def run(view: View, form: DialogForm) -> str:
        values = form.values
        clusters = await view.admin.clusters()
        await view.admin.create_topic(
            values["name"],
            queues=values["queues"] or 0,
            perm=values["perm"],
            message_type=values["message_type"],
            cluster=values["cluster"] or (clusters[0] if len(clusters) == 1 else None),
        )
        return f"topic {values['name']} is created"

    return Action(
        "create topic",
        Role.ADMIN,
        "New topic",
        "add",
        run,
        submit="Create",
        explanation=_QUEUES_EXPLAINED,
        next_view=lambda values: ("topics", values["name"]),
        fields=(
            Field("name", "Name"),
            Field("queues", "Queues on each broker", "number", 8, least=1),
            Field("perm", "Permission", "choice", "rw", _PERMS),
            Field("message_type", "Type of messages (for 5.x producers)", "choice", "NORMAL", TYPES[1:]),
            _CLUSTER,
        ),
    )


def change_topic(topic: Topic) -> Action:
    first = topic.shares[0]
    return Action(
        "change topic",
        Role.ADMIN,
        "Change",
        "tune",
        lambda view, form: view.admin.change_topic(topic.name, **form.values),
        topic.name,
        f"Change {topic.name}",
        done=f"topic {topic.name} is changed",
        explanation="Queues that are to go get no more messages. They are read until all is consumed; then lower their "
        "number once more.",
        fields=(
            Field("read_queues", "Read queues on each broker", "number", first.read_queues, least=0),
            Field("write_queues", "Write queues on each broker", "number", first.write_queues, least=0),
            Field("perm", "Permission", "choice", first.perm, _PERMS),
        ),
    )


def delete_topic(topic: Topic) -> Action:
    return Action(
        "delete topic",
        Role.ADMIN,
        "Delete",
        "delete",
        lambda view, _: view.admin.delete_topic(topic.name),
        topic.name,
        f"Delete {topic.name}",
        submit="Delete",
        color="negative",
        explanation=f"This deletes {counted(topic.count, 'message')} on {counted(len(topic.shares), 'broker')}. "
        "Nothing can restore them.",
        done=f"topic {topic.name} is deleted",
        typed_name=lambda _: topic.name,
        next_view=lambda _: ("topics",),
    )


# Groups and offsets -------------------------------------------------------------------------------------------------

_POSITIONS: Final = {
    "earliest": "the first stored message",
    "latest": "the end: skip all waiting messages",
    "time": "a time: messages stored since then",
    "offset": "an offset, the same in each queue (no member may be online)",
}


def reset_offsets(group: str = "", topic: str = "") -> Action:
    """Move a group to other offsets. The dialog is filled with what is given."""

    async def dry_run(view: View, form: DialogForm) -> str:
        group, topic = form.values["group"], form.values["topic"]
        targets = await view.cluster.reset_targets(topic, position_of(form.values["position"], form.values["at"]))
        return ResetEffect.from_offsets(await view.admin.lag(group, topic), targets).text(group, topic)

    return Action(
        "reset offsets",
        Role.OPERATE,
        "Reset offsets",
        "history",
        lambda view, form: view.admin.reset(
            form.values["group"], form.values["topic"], position_of(form.values["position"], form.values["at"])
        ),
        submit="Reset offsets",
        done="offsets of group {group} are reset",
        color="warning",
        check=Check("Dry run", "visibility", dry_run),
        fields=(
            Field("group", "Group", value=group),
            Field("topic", "Topic", value=topic),
            Field("position", "Position", "choice", "latest", _POSITIONS),
            Field("at", "Time or offset", shown_if=lambda values: values["position"] in ("time", "offset")),
        ),
    )


def skip_waiting(lag: GroupLag) -> Action:
    """Move a group to the end of a topic that it consumes."""
    topics = topics_of(lag)
    return Action(
        "skip waiting messages",
        Role.OPERATE,
        "Skip waiting messages",
        "fast_forward",
        lambda view, form: view.admin.reset(lag.group, form.values["topic"], "latest"),
        lag.group,
        submit="Skip",
        color="warning",
        done=f"group {lag.group} skips to the end",
        fields=[Field("topic", "Topic", "choice", topics[0], topics)],
        effect=lambda values: skip_text(lag, values["topic"]),
    )


def create_group() -> Action:
    return Action(
        "create group",
        Role.ADMIN,
        "New group",
        "add",
        lambda view, form: view.admin.create_group(
            form.values["name"],
            max_retries=form.values["max_retries"] or 0,
            ordered=form.values["ordered"],
            retry_pauses=form.values["retry_pauses"] or LEVELS,
            cluster=form.values["cluster"] or None,
        ),
        submit="Create",
        done="group {name} is created",
        next_view=lambda values: ("groups", values["name"]),
        fields=(
            Field("name", "Name"),
            Field("max_retries", _MAX_RETRIES, "number", 16, least=0),
            _RETRY_PAUSES,
            Field("ordered", _ORDERED, "box", False),
            _CLUSTER,
        ),
    )


def change_group(group: Group) -> Action:
    first = next(iter(group.settings.values()))
    pauses = text_of(first.group_retry_policy)

    async def run(view: View, form: DialogForm) -> str:
        values = {**form.values, "retry_pauses": form.values["retry_pauses"] or LEVELS}
        if values["retry_pauses"] == pauses:
            del values["retry_pauses"]
        await view.admin.change_group(group.name, **values)
        return f"group {group.name} is changed"

    return Action(
        "change group",
        Role.ADMIN,
        "Change",
        "tune",
        run,
        group.name,
        f"Change {group.name}",
        fields=(
            Field("max_retries", _MAX_RETRIES, "number", first.retry_max_times, least=-1),
            Field(
                "retry_queues", "Queues of the retry topic on each broker", "number", first.retry_queue_nums, least=0
            ),
            replace(_RETRY_PAUSES, value=pauses),
            Field("ordered", _ORDERED, "box", bool(first.consume_message_orderly)),
            Field("may_consume", "May consume", "box", first.consume_enable),
            Field("may_broadcast", "May broadcast", "box", first.consume_broadcast_enable),
        ),
    )


def delete_group(group: str) -> Action:
    return Action(
        "delete group",
        Role.ADMIN,
        "Delete",
        "delete",
        lambda view, _: view.admin.delete_group(group),
        group,
        f"Delete {group}",
        submit="Delete",
        color="negative",
        explanation="This also deletes its offsets, retries and dead letters. An online member creates it again.",
        done=f"group {group} is deleted",
        typed_name=lambda _: group,
        next_view=lambda _: ("groups",),
    )


# Messages -----------------------------------------------------------------------------------------------------------


def resend_message(message: ReceivedMessage) -> Action:
    """Let one member handle a message now."""

    async def offer_members(view: View, form: DialogForm) -> str:
        members = await view.admin.members(form.values["group"])
        form.offer("member", [member.client_id for member in members])
        if not members:
            raise ValueError("no member of this group is online")
        return ""

    async def run(view: View, form: DialogForm) -> str:
        group, member = form.values["group"], form.values["member"]
        if not member:
            raise ValueError("choose a member")
        stored = message.stored
        outcome = await consume_directly(
            view.cluster.servers, stored.store_host, group, member, stored.offset_id, message.queue.broker_name
        )
        result = f"{outcome.consume_result} in {outcome.spent_time_mills} ms"
        return f"{result}: {outcome.remark}" if outcome.remark else result

    return Action(
        "resend message",
        Role.OPERATE,
        "Resend to a member",
        "replay",
        run,
        message.msg_id,
        "Let a member handle the message now",
        "The member handles the message once more. The group's offsets do not matter.",
        (Field("group", "Group"), Field("member", "Member", "choice")),
        "Resend",
        "warning",
        check=Check("Show online members", "groups", offer_members),
    )


def retry_dead_letters(group: str, chosen_letters: Callable[[], AsyncIterator[ReceivedMessage]]) -> Action:
    """Send dead letters to their group again; `chosen_letters` reads them each time."""

    async def dry_run(view: View, form: DialogForm) -> str:
        topics, count = set(), 0
        async for letter in chosen_letters():
            topics.add(original_topic(letter))
            count += 1
            if count % 1000 == 0:
                form.report(f"{count:,} so far")
        return f"{counted(count, 'dead letter')} of {', '.join(sorted(topics)) or 'no topic'} would be sent again."

    async def run(view: View, form: DialogForm) -> str:
        rate = form.values["rate"]
        count, last = 0, ""
        try:
            async for letter in chosen_letters():
                view.check_role(Role.OPERATE, "retry dead letters")  # the log-out ends it
                await view.admin.resend(letter)
                count, last = count + 1, time_text(letter.stored.store_timestamp_ms)
                form.report(f"{count:,} sent")
                await asyncio.sleep(1 / rate if rate else 0.0)
        except SparrowError:
            if count:
                view.say(f"sent {counted(count, 'dead letter')} to {group} again; it broke off after the one of {last}")
            raise
        return f"sent {counted(count, 'dead letter')} to {group} again"

    return Action(
        "retry dead letters",
        Role.OPERATE,
        "Retry",
        "replay",
        run,
        group,
        f"Retry dead letters of {group}",
        "The group receives the dead letters with a tick, or all that match the filters if none has one. Other groups "
        "do not receive them. Their retries start again. They also stay here: if you retry them twice, the group "
        "receives them twice.",
        [Field("rate", "Maximum messages per second", "number", least=1)],
        "Retry",
        "warning",
        check=Check("Dry run", "visibility", dry_run),
    )


# Brokers, accounts and name servers ---------------------------------------------------------------------------------

_ACCOUNT_PERMS: Final = ("", "DENY", "PUB", "SUB", "PUB|SUB")


def change_setting(broker: str, address: str, settings: Mapping[str, str]) -> Action:
    def effect(values: Values) -> str:
        name = values["name"] or ""
        return f"{name}: {hidden(name, settings.get(name, ''))!r} becomes {values['value']!r}"

    async def run(view: View, form: DialogForm) -> str:
        name, value = form.values["name"] or "", form.values["value"]
        await change_broker_settings(view.cluster.servers, address, {name: value})
        return f"{name} is {hidden(name, value)}"

    return Action(
        "change setting",
        Role.ADMIN,
        "Change a setting",
        "tune",
        run,
        broker,
        color="warning",
        effect=effect,
        explanation="The change takes effect at once, and is saved in the broker's file if there is one. The broker "
        "refuses a setting that needs a restart.",
        fields=(
            Field("name", "Setting", "choice", choices=sorted(settings)),
            Field("value", "New value", is_logged=False),
        ),
    )


def forget_broker(name: str) -> Action:
    """Expect a broker no more that was removed for good."""

    async def run(view: View, _: DialogForm) -> None:
        view.samples.troubles.forget(name)

    return Action(
        "forget broker",
        Role.ADMIN,
        f"Forget {name}",
        "delete_sweep",
        run,
        name,
        explanation=f"The console expects only the brokers of {name} that are registered now. It changes no broker.",
        submit="Forget",
        done=f"broker {name} is forgotten",
    )


def use_name_servers(addresses: Sequence[str]) -> Action:
    """Have the console ask other name servers, until it stops."""
    return Action(
        "use other name servers",
        Role.ADMIN,
        "Use other name servers",
        "swap_horiz",
        lambda view, form: view.cluster.use_name_servers(form.values["addresses"]),
        submit="Use",
        done="the console uses these name servers now",
        explanation="This holds for all visitors, until the console stops. Its next start uses the addresses of -n "
        "again. Each name server must answer.",
        fields=[Field("addresses", "Addresses", value=";".join(addresses), hint="host:port;host:port")],
    )


@dataclass(frozen=True, slots=True)
class BrokerAccounts:
    """The accounts of one master, and the addresses of all by name."""

    broker: str
    masters: Mapping[str, str]
    accounts: AccountList

    @property
    def address(self) -> str:
        return self.masters[self.broker]

    def places(self, values: Values) -> Mapping[str, str]:
        """The masters that a form names."""
        return self.masters if values["everywhere"] else {self.broker: self.address}


def put_account(broker_accounts: BrokerAccounts) -> Action:
    async def run(view: View, form: DialogForm) -> str:
        values = {name: value or None for name, value in form.values.items()}
        request = UpdateAndCreateAclConfig(
            access_key=values["key"] or "",
            secret_key=values["secret"],
            white_remote_address=values["white"],
            admin=bool(values["admin"]),
            default_topic_perm=values["topic"],
            default_group_perm=values["group"],
            topic_perms=values["topics"],
            group_perms=values["groups"],
        )
        servers, places = view.cluster.servers, broker_accounts.places(values)
        description = f"saving account {request.access_key}"
        broker_names = await servers.change(
            description, places, lambda _, at: catalogue.put_account(servers, at, request)
        )
        return f"account {request.access_key} is saved at {', '.join(broker_names)}"

    return Action(
        "save account",
        Role.ADMIN,
        "Create or change an account",
        "person_add",
        run,
        broker_accounts.address,
        fields=(
            Field("key", "Access key, more than 6 characters"),
            Field("secret", "Secret key; empty keeps the old one", "secret"),
            Field("topic", "Default for topics", "choice", "", _ACCOUNT_PERMS),
            Field("group", "Default for groups", "choice", "", _ACCOUNT_PERMS),
            Field("topics", "Topics: orders=PUB|SUB,logs=SUB"),
            Field("groups", "Groups: billing=SUB"),
            Field("white", "Addresses that need not sign"),
            Field("admin", "Administrator: may do everything, and change brokers", "box"),
            Field("everywhere", "On all masters", "box", True),
        ),
    )


def set_white_addresses(broker_accounts: BrokerAccounts) -> Action:
    async def run(view: View, form: DialogForm) -> str:
        servers, patterns = view.cluster.servers, form.values["patterns"]
        broker_names = await servers.change(
            "saving the addresses without account",
            broker_accounts.places(form.values),
            lambda _, at: catalogue.set_white_addresses(servers, at, patterns),
        )
        return f"the addresses are saved at {', '.join(broker_names)}"

    return Action(
        "set addresses without account",
        Role.ADMIN,
        "Addresses",
        "lan",
        run,
        broker_accounts.address,
        "Addresses that need no account",
        "Clients at these addresses may do everything. Separate addresses with commas: 10.0.0.*,192.168.1.1-9",
        (
            Field("patterns", "Addresses", value=",".join(broker_accounts.accounts.global_white_addrs)),
            Field("everywhere", "On all masters", "box", False),
        ),
        color="warning",
    )


def delete_account(broker_accounts: BrokerAccounts) -> Action:
    keys = [account.access_key for account in broker_accounts.accounts.plain_access_configs]

    return Action(
        "delete account",
        Role.ADMIN,
        "Delete an account",
        "delete",
        lambda view, form: catalogue.delete_account(view.cluster.servers, broker_accounts.address, form.values["key"]),
        broker_accounts.address,
        done=f"account {{key}} is deleted at {broker_accounts.address}",
        explanation=f"{broker_accounts.address} then refuses clients that use this account.",
        fields=[Field("key", "Access key", "choice", keys[0] if keys else None, keys)],
        submit="Delete",
        color="negative",
        typed_name=lambda values: values["key"] or "",
    )


@dataclass(frozen=True, slots=True)
class ResetEffect:
    """The effect of a reset: how many messages come again, and how many never come."""

    again: int
    skipped: int

    @staticmethod
    def from_offsets(lag: GroupLag, targets: Mapping[MessageQueue, int]) -> ResetEffect:
        committed = {queue_lag.queue: queue_lag.committed for queue_lag in lag.queues}
        steps = [target - committed.get(queue, target) for queue, target in targets.items()]
        return ResetEffect(-sum(step for step in steps if step < 0), sum(step for step in steps if step > 0))

    def text(self, group: str, topic: str) -> str:
        return (
            f"Group {group} would receive {counted(self.again, 'message')} of {topic} again, "
            f"and would skip {self.skipped:,} waiting messages."
        )


def position_of(kind: str, text: str) -> ResetTo:
    """The position that a form names. Raises: ValueError."""
    if kind == "time":
        if (moment := parse_time(text, "time")) is None:
            raise ValueError("the time is missing; write it as 2026-11-20 08:00")
        return moment
    if kind == "offset":
        if (offset := whole_number(text)) is None:
            raise ValueError(f"{text[:40]!r} is not an offset; write a number from 0 on")
        return offset
    return "earliest" if kind == "earliest" else "latest"


def topics_of(lag: GroupLag) -> list[str]:
    """The topics that a group consumes, without those of RocketMQ."""
    topics = {queue_lag.queue.topic for queue_lag in lag.queues}
    return sorted(topic for topic in topics if not topic.startswith("%"))


def skip_text(lag: GroupLag, topic: str) -> str:
    waiting = sum(queue_lag.lag for queue_lag in lag.queues if queue_lag.queue.topic == topic)
    return f"Group {lag.group} will never receive {counted(waiting, 'message')} of {topic}."
