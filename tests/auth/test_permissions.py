"""What requests need, and who has it."""

import pytest

from sparrowmq.auth import permissions
from sparrowmq.auth.accounts import parse_account
from sparrowmq.auth.users import PUB, SUB
from sparrowmq.errors import AccessDenied
from sparrowmq.protocol.requests import admin_headers, headers
from sparrowmq.protocol.requests import pop_headers as pop
from sparrowmq.protocol.requests.client_bodies import ClientConfigCheck
from sparrowmq.protocol.requests.request_table import BY_CODE, ROWS, Access, Role
from sparrowmq.protocol.subscription import Subscription
from tests.auth.asked import beat, locks, pull, received, send

TOPICS = {100: "stored"}
ACKS = pop.BatchAcks("b", [pop.BatchAck("g", "t", "1", 0, 0, 7, 1, 1, "AQ==")]).encode()
BACK = headers.ConsumerSendMsgBack(100, "g", 0)


def needs(request, body=b""):
    _, command, row, header = received(request, body)
    return sorted(set(permissions.needs(row, header, command.body, TOPICS.get)))


@pytest.mark.covers("S-ACL-06")
@pytest.mark.parametrize(
    ("request_header", "body", "expected"),
    [
        (send("t"), b"", [("t", PUB)]),
        (headers.SendMessage("p", "t", "d", 4, 0, 0, 0, 0), b"", [("t", PUB)]),
        (headers.SendBatchMessage("p", "t", "d", 4, 0, 0, 0, 0), b"", [("t", PUB)]),
        (send("%RETRY%g", "p"), b"", [("%RETRY%g", SUB)]),
        (pull("t", "g"), b"", [("%RETRY%g", SUB), ("t", SUB)]),
        (headers.LitePullMessage("g", "t", 0, 0, 1, 0, 0, 0, 0), b"", [("%RETRY%g", SUB), ("t", SUB)]),
        (pop.PopMessage("g", "t", -1, 32, 1, 0, 0, 0), b"", [("%RETRY%g", SUB), ("t", SUB)]),
        (pop.AckMessage("g", "t", 0, "handle", 0), b"", [("%RETRY%g", SUB), ("t", SUB)]),
        (pop.AckMessage("g", "%RETRY%g_t", 0, "handle", 0), b"", [("%RETRY%g", SUB), ("t", SUB)]),
        (pop.ChangeInvisibleTime("g", "%RETRY%g+t", 0, "h", 0, 1), b"", [("%RETRY%g", SUB), ("t", SUB)]),
        (pop.BatchAckMessage(), ACKS, [("%RETRY%g", SUB), ("t", SUB)]),
        (pull("%RETRY%g", "g"), b"", [("%RETRY%g", SUB)]),
        (headers.QueryMessage("t", "k", 1, 0, 1), b"", [("t", SUB)]),
        (headers.ViewMessage(100), b"", [("stored", SUB)]),
        (headers.ViewMessage(100, "other"), b"", [("stored", SUB)]),
        (headers.ViewMessage(101, "other"), b"", []),
        (BACK, b"", [("%RETRY%g", SUB), ("stored", SUB)]),
        (headers.QueryConsumerOffset("g", "t", 0), b"", [("%RETRY%g", SUB), ("t", SUB)]),
        (headers.UpdateConsumerOffset("g", "t", 0, 1), b"", [("%RETRY%g", SUB), ("t", SUB)]),
        (headers.GetConsumerListByGroup("g"), b"", [("%RETRY%g", SUB)]),
        (headers.UnregisterClient("me", "p", "g"), b"", [("%RETRY%g", SUB)]),
        (headers.UnregisterClient("me", "p", ""), b"", []),
        (headers.UnregisterClient("me", "p"), b"", []),
        (headers.HeartBeat(), beat(producers=("p",)), []),
        (
            headers.HeartBeat(),
            beat(("g", "t"), ("h", "t")),
            [("%RETRY%g", SUB), ("%RETRY%h", SUB), ("t", SUB)],
        ),
        (headers.LockBatchMq(), locks("g", "t", "u"), [("%RETRY%g", SUB), ("t", SUB), ("u", SUB)]),
        (headers.UnlockBatchMq(), locks("g"), [("%RETRY%g", SUB)]),
        (
            headers.CheckClientConfig(),
            ClientConfigCheck("me", "g", Subscription("t")).encode(),
            [("%RETRY%g", SUB), ("t", SUB)],
        ),
        (headers.GetMaxOffset("t", 0), b"", [("t", PUB | SUB)]),
        (headers.GetMinOffset("t", 0), b"", [("t", PUB | SUB)]),
        (headers.GetEarliestMsgStoretime("t", 0), b"", [("t", PUB | SUB)]),
        (headers.SearchOffset("t", 0, 0), b"", [("t", PUB | SUB)]),
        (headers.SearchOffset("%RETRY%g", 0, 0), b"", [("%RETRY%g", SUB)]),
        (headers.SendReply("p", "c_REPLY_TOPIC", "d", 4, 0, 0, 0, 0), b"", []),
        (
            headers.SendReply("p", "shop%c_REPLY_TOPIC", "d", 4, 0, 0, 0, 0),
            b"",
            [("shop%c_REPLY_TOPIC", PUB)],
        ),
        (admin_headers.DeleteTopic("t"), b"", []),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_request_needs_what_it_is_about(request_header, body, expected):
    assert needs(request_header, body) == expected


def test_every_request_that_reads_or_writes_names_what_it_is_about():
    """A new row must say by its fields, or in NAMED_ELSEWHERE, what is asked about."""
    for row in ROWS:
        if row.served_by & Role.BROKER and row.access in (Access.READ, Access.WRITE):
            assert row.topic or row.group or row.code in permissions.NEEDS_ELSEWHERE, row.name


# Their handlers ask the account: about the transaction's topic and owner, and about those of the batch.
ASKED_BY_HANDLERS = {37, 32002}


def test_every_request_of_any_account_says_what_it_is_about():
    """A request that needs no access of its own must not name topics and groups that are not checked."""
    for row in ROWS:
        if row.served_by & Role.BROKER and row.access is Access.CLIENT:
            assert row.code in permissions.NEEDS_ELSEWHERE or row.code in ASKED_BY_HANDLERS, row.name


def account(**fields):
    return parse_account({"accessKey": "RocketMQ", "secretKey": "12345678"} | fields)


@pytest.mark.covers("S-ACL-04")
@pytest.mark.parametrize("row", [row for row in ROWS if row.served_by & Role.BROKER], ids=lambda row: row.name)
def test_administrators_alone_do_what_changes_or_shows_what_is_others(row):
    permissions.check(account(admin="true"), row, [])
    anybody = account(defaultTopicPerm="PUB|SUB", defaultGroupPerm="PUB|SUB")
    if row.access in (Access.ADMIN, Access.CLUSTER):
        words = f"Need admin permission for request code={int(row.code)}, but accessKey=RocketMQ is not"
        with pytest.raises(AccessDenied, match=words):
            permissions.check(anybody, row, [])
    else:
        permissions.check(anybody, row, [("t", PUB), ("%RETRY%g", SUB)])


@pytest.mark.parametrize("code", [17, 25, 200, 207, 215])
def test_what_needs_an_administrator_at_apaches_does_so_here(code):
    assert BY_CODE[code].access is Access.ADMIN


@pytest.mark.covers("S-ACL-07")
def test_a_listed_permission_counts_before_the_usual_one():
    one = account(defaultTopicPerm="SUB", defaultGroupPerm="SUB", topicPerms=["t=PUB"], groupPerms=["g=DENY"])
    row = BY_CODE[11]
    permissions.check(one, row, [("u", SUB), ("%RETRY%h", SUB), ("t", PUB)])
    for need, words in [(("t", SUB), "topic:t"), (("%RETRY%g", SUB), "group:g"), (("u", PUB), "topic:u")]:
        with pytest.raises(AccessDenied, match=f"No default permission for {words}"):
            permissions.check(one, row, [("u", SUB), need])


def test_traces_are_taken_from_every_account():
    permissions.check(account(), BY_CODE[310], [("RMQ_SYS_TRACE_TOPIC", PUB)])
    with pytest.raises(AccessDenied):
        permissions.check(account(), BY_CODE[11], [("RMQ_SYS_TRACE_TOPIC", SUB)])


def test_a_trace_allows_nothing_else_of_its_request():
    with pytest.raises(AccessDenied, match="topic:orders"):
        permissions.check(account(), BY_CODE[310], [("RMQ_SYS_TRACE_TOPIC", PUB), ("orders", PUB)])
    with pytest.raises(AccessDenied, match="admin"):
        permissions.check(account(), BY_CODE[17], [("RMQ_SYS_TRACE_TOPIC", PUB)])


INTERNAL = [
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "OFFSET_MOVED_EVENT",
    "rmq_sys_wheel_timer",
    "rmq_sys_STAGED",
    "rmq_sys_something",
    "DefaultCluster_REPLY_TOPIC",
    "%RETRY%CID_RMQ_SYS_TRANS",
    "%RETRY%CID_RMQ_SYS_something",
    permissions.UNKNOWN,
]


@pytest.mark.parametrize("resource", INTERNAL)
@pytest.mark.parametrize("needed", [PUB, SUB, PUB | SUB])
def test_the_brokers_own_topics_and_groups_are_for_administrators_and_who_is_listed(resource, needed):
    anything = {"defaultTopicPerm": "PUB|SUB", "defaultGroupPerm": "PUB|SUB"}
    assert not account(**anything).may(resource, needed)
    assert account(admin="true").may(resource, needed)
    assert account(admin="true", topicPerms=["orders=PUB"]).may(resource, needed)
    if resource and not resource.startswith("%"):
        assert account(topicPerms=[f"{resource}=PUB|SUB"]).may(resource, needed)


def test_dead_letters_are_for_who_may_consume_as_their_group():
    assert not account(defaultTopicPerm="SUB", groupPerms=["g=DENY"]).may("%DLQ%g", SUB)
    assert not account(defaultGroupPerm="SUB").may("%DLQ%g", SUB)
    assert account(defaultTopicPerm="SUB", groupPerms=["g=SUB"]).may("%DLQ%g", SUB)
    assert account(topicPerms=["%DLQ%g=SUB"]).may("%DLQ%g", SUB)
