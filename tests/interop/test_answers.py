"""The page of differences lists every request that our broker answers with another code than Apache's.

The tests read the table of docs/understand/differences.md, send each request to both brokers, and compare the codes.
"""

import json
import re
from pathlib import Path

import pytest

from tests.interop.apache import ApacheBroker
from tests.interop.servers import OURS, SETTINGS, OurBroker, start_namesrv, topic_fields
from tests.interop.wire import Wire

PAGE = Path(__file__).parents[2] / "docs" / "understand" / "differences.md"
ROWS = re.findall(r"(?m)^\| ([^|]+) \| (\d+) \| (\d+) \|", PAGE.read_text())
READ_ONLY = "send to a broker with brokerPermission=4"
CREATE, SEND, PULL, OFFSET, COMMIT, BEAT, BACK, GROUP, RESET, RESUME, MOVE = (
    17,
    310,
    11,
    14,
    15,
    34,
    36,
    200,
    222,
    323,
    220,
)


def commit(**more):
    return COMMIT, {"consumerGroup": "answers", "topic": "Answers", "queueId": 0, "commitOffset": 1} | more


def send(topic, properties="", **more):
    fields = {"a": "p", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1_700_000_000_000, "h": 0}
    return SEND, fields | {"i": properties, "j": 0, "k": "false", "m": "false"} | more, b"body"


def pull(group, topic="Answers", flags=4, **more):
    fields = {"consumerGroup": group, "topic": topic, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32}
    fields |= {"commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "expressionType": "TAG"}
    return PULL, fields | {"sysFlag": flags, "subVersion": 0} | more


def beat(group, model):
    wanted = {"topic": "Answers", "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 5}
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": model,
        "unitMode": False,
    }
    consumer |= {"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [wanted]}
    body = {"clientID": "answers@1", "consumerDataSet": [consumer], "producerDataSet": []}
    return BEAT, {}, json.dumps(body).encode()


def group(name, **more):
    usual = {"groupName": name, "consumeEnable": True, "consumeBroadcastEnable": True, "retryQueueNums": 1}
    usual |= {
        "retryMaxTimes": 16,
        "brokerId": 0,
        "consumeFromMinEnable": True,
        "whichBrokerWhenConsumeSlowly": 1,
    }
    return GROUP, {}, json.dumps(usual | {"notifyConsumerIdsChangedEnable": True} | more).encode()


def reset(name):
    return RESET, {"topic": "Answers", "group": name, "timestamp": 0, "isForce": "true"}


def create(name, **more):
    return CREATE, topic_fields(name) | more


# The requests of each row; one may be made from the answer to the one before. The last answer counts.
REQUESTS = {
    "commit an offset for a topic that does not exist": [commit(topic="Absent")],
    "commit a negative offset": [commit(commitOffset=-1)],
    "commit an offset for a group with an illegal name": [commit(consumerGroup="a b")],
    "create a group with an illegal name": [group("a b")],
    "create a topic without queues": [create("Narrow", readQueueNums=0, writeQueueNums=0)],
    "create a topic with permission 9": [create("Odd", perm=9)],
    "send with a delay level that is not a number": [send("Answers", "DELAY\x01soon\x02")],
    "send with `reconsumeTimes` below 0": [send("Answers", j=-1)],
    "reset a group that has never committed": [beat("fresh", "CLUSTERING"), reset("fresh")],
    "pull as a broadcasting member of a group that may not broadcast, with a subscription in the pull": [
        group("loud", consumeBroadcastEnable=False),
        beat("loud", "BROADCASTING"),
        send("Answers"),
        pull("loud", flags=4 | 2, suspendTimeoutMillis=5000),
    ],
    READ_ONLY: [send("Answers")],
    "send a half message with a delay": [send("Answers", "TRAN_MSG\x01true\x02PGROUP\x01p\x02DELAY\x013\x02", f=4)],
    "resume (323) a message that is not a half message, or whose transaction is open": [
        send("Answers"),
        lambda sent: (RESUME, {"topic": "Answers", "msgId": sent.fields["msgId"]}),
    ],
}
# Requests that both brokers answer alike: the code, and a part of the answer's remark or fields.
ALIKE = {
    "send to a topic that may only be read": ([create("Drained", perm=4), send("Drained")], 0, ""),
    "pull from a topic that may only be written": (
        [create("Full", perm=2), pull("p", "Full")],
        16,
        "[Full] pulling",
    ),
    "ask for the offset in a topic that does not exist": (
        [(OFFSET, commit(topic="Absent", consumerGroup="new")[1])],
        0,
        "'offset': '0'",
    ),
    "pull as a group that may not consume": (
        [group("off", consumeEnable=False), pull("off")],
        16,
        "no permission",
    ),
    "pull as a group that may not broadcast": (
        [group("quiet", consumeBroadcastEnable=False), beat("quiet", "BROADCASTING"), pull("quiet", flags=0)],
        16,
        "can not consume by broadcast way",
    ),
    "pull with a subscription newer than the heartbeat's": (
        [group("later"), beat("later", "CLUSTERING"), pull("later", flags=0, subVersion=6)],
        25,
        "the consumer's subscription not latest",
    ),
}


def ask(address, requests):
    host, _, port = address.rpartition(":")
    with Wire(int(port), host) as wire:
        reply = None
        for request in requests:
            assert reply is None or reply.code == 0
            reply = wire.ask(*(request(reply) if callable(request) else request))
        return reply


@pytest.fixture(scope="module")
def answering(target):
    target.create_topic("Answers")
    return target


def test_every_row_of_the_page_is_asked():
    assert [what for what, _, _ in ROWS] == list(REQUESTS)


@pytest.mark.parametrize(("what", "ours", "apaches"), [row for row in ROWS if row[0] != READ_ONLY])
def test_a_request_is_answered_as_the_page_says(answering, what, ours, apaches):
    reply = ask(answering.broker, REQUESTS[what])
    assert str(reply.code) == (ours if answering.is_ours else apaches), reply.remark


@pytest.mark.parametrize("what", ALIKE)
def test_a_request_is_answered_alike(answering, what):
    requests, code, words = ALIKE[what]
    reply = ask(answering.broker, requests)
    assert reply.code == code and words in f"{reply.remark} {reply.fields}"


@pytest.mark.parametrize(
    ("language", "table"),
    [
        ("JAVA", b'{{"brokerName":"broker-a","queueId":0,"topic":"Narrow-JAVA"}:0}'),
        ("CPP", b'[{"brokerName":"broker-a","offset":0,"queueId":0,"topic":"Narrow-CPP"}]'),
    ],
)
def test_a_member_is_told_of_a_reset_in_the_form_of_its_language(answering, language, table):
    name = f"Narrow-{language}"
    fields = {"topic": name, "group": name, "timestamp": 0, "isForce": "true"}
    answering.create_topic(name, queues=1)
    host, _, port = answering.broker.rpartition(":")
    with Wire(int(port), host) as member:
        code, _, body = beat(name, "CLUSTERING")
        assert member.ask(code, body=body, language=language).code == 0
        assert member.ask(COMMIT, {"consumerGroup": name, "topic": name, "queueId": 0, "commitOffset": 0}).code == 0
        assert answering.ask(RESET, fields, language=language).code == 0
        while (push := member.receive()).code != MOVE:
            pass
    assert push.fields == {"topic": name, "group": name, "timestamp": "0", "isForce": "false"}
    assert push.body == b'{"offsetTable":' + table + b"}"


def test_a_message_sent_back_with_no_tries_at_all_is_a_dead_letter(answering):
    offset = int(ask(answering.broker, [send("Answers")]).fields["msgId"][16:], 16)
    back = {"offset": offset, "group": "spent", "delayLevel": 0, "unitMode": "false", "maxReconsumeTimes": -1}
    host, _, port = answering.broker.rpartition(":")
    with Wire(int(port), host) as wire:
        assert wire.ask(BACK, back, version=401).code == 0
    answering.wait_for_messages("%DLQ%spent")


@pytest.mark.parametrize("name", [OURS, pytest.param("apache-4.9.7", marks=[pytest.mark.nightly, pytest.mark.slow])])
@pytest.mark.parametrize("permission", [2, 4])
def test_a_broker_keeps_its_own_permission(tmp_path, name, permission):
    settings = SETTINGS | {"brokerPermission": permission}
    with start_namesrv(name) as namesrv:
        started = (
            OurBroker(namesrv.address, tmp_path, settings)
            if name == OURS
            else ApacheBroker("4.9.7", namesrv.address, tmp_path, settings)
        )
        with started as broker:
            assert ask(broker.address, [create("Answers")]).code == 0
            sent = ask(broker.address, REQUESTS[READ_ONLY]).code
            pulled = ask(broker.address, [pull("g")]).code
    refused = {what: row for what, *row in ROWS}[READ_ONLY]
    assert sent == (0 if permission == 2 else int(refused[name != OURS]))
    assert (pulled == 16) is (permission == 2)
