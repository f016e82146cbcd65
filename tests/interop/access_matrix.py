"""Every request in the name of twelve people, at a broker with access control: who is denied, and why.

    python -m tests.interop.access_matrix      records what Apache's 4.9.7 answers, to tests/golden/access-4.9.7.json

A request is signed here with the standard library alone. The fields are those that any request wants, all at once:
brokers pass over what they do not know. Two people come from addresses of their own, 127.0.0.11 and 127.0.0.12.
"""

from __future__ import annotations

import hmac
import json
import socket
import tempfile
from base64 import b64encode
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparrowmq.protocol.requests.request_table import ROWS
from tests.interop.apache import ApacheBroker, ApacheNamesrv
from tests.interop.servers import SETTINGS
from tests.interop.wire import Wire, request

RECORDING: Final = Path(__file__).parents[1] / "golden" / "access-4.9.7.json"
DENIED: Final = "org.apache.rocketmq.acl.common.AclException: "
SILENCE_S: Final = 0.4

TOPIC: Final = "Matrix"
GROUP: Final = "matrix"
ACCOUNTS: Final = f"""
globalWhiteRemoteAddresses: [127.0.0.12]
accounts:
- {{accessKey: nothing, secretKey: 12345678, topicPerms: [{TOPIC}=DENY], groupPerms: [{GROUP}=DENY]}}
- {{accessKey: publisher, secretKey: 12345678, topicPerms: [{TOPIC}=PUB], groupPerms: [{GROUP}=PUB]}}
- {{accessKey: subscriber, secretKey: 12345678, topicPerms: [{TOPIC}=SUB], groupPerms: [{GROUP}=SUB]}}
- {{accessKey: bothways, secretKey: 12345678, topicPerms: [{TOPIC}=PUB|SUB], groupPerms: [{GROUP}=PUB|SUB]}}
- {{accessKey: administrator, secretKey: 12345678, admin: true}}
- {{accessKey: athomehere, secretKey: 12345678, whiteRemoteAddress: 127.0.0.11}}
"""


@dataclass(frozen=True)
class Person:
    """Who asks: with which keys, from where, and what is changed on the way."""

    name: str
    access_key: str = ""
    secret_key: str = "12345678"
    address: str = "127.0.0.1"
    changes: str = ""


PEOPLE: Final = (
    Person("nobody"),
    Person("unknown", "stranger"),
    Person("wrong secret", "administrator", "87654321"),
    Person("field changed", "administrator", changes="field"),
    Person("body changed", "administrator", changes="body"),
    Person("DENY", "nothing"),
    Person("PUB", "publisher"),
    Person("SUB", "subscriber"),
    Person("PUB|SUB", "bothways"),
    Person("admin", "administrator"),
    Person("account's address", "athomehere", "no secret", address="127.0.0.11"),
    Person("everybody's address", address="127.0.0.12"),
)
CODES: Final = tuple(int(row.code) for row in ROWS)

_QUEUE: Final = {"topic": TOPIC, "brokerName": "broker-a", "queueId": 0}
_CONSUMER: Final = {
    "groupName": GROUP,
    "consumeType": "CONSUME_PASSIVELY",
    "messageModel": "CLUSTERING",
    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
    "subscriptionDataSet": [{"topic": TOPIC, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1}],
    "unitMode": False,
}
_OF_ACKS: Final = {"so": 0, "q": 0, "rq": 0, "pt": 0, "it": 1000}
_BODIES: Final[Mapping[int, object]] = {
    34: {"clientID": "matrix@1", "consumerDataSet": [_CONSUMER], "producerDataSet": [{"groupName": "p"}]},
    41: {"consumerGroup": GROUP, "clientId": "matrix@1", "mqSet": [_QUEUE]},
    42: {"consumerGroup": GROUP, "clientId": "matrix@1", "mqSet": [_QUEUE]},
    46: {"clientId": "matrix@1", "group": GROUP, "subscriptionData": _CONSUMER["subscriptionDataSet"][0]},  # type: ignore[index]
    200: {"groupName": "made", "retryQueueNums": 1},
    200151: {"brokerName": "broker-a", "acks": [{"c": GROUP, "t": TOPIC, "r": "0", "b": "", **_OF_ACKS}]},
    400: {"topic": TOPIC, "consumerGroup": GROUP, "clientId": "matrix@1", "strategyName": "AVG"},
}
_FIELDS: Final[Mapping[str, object]] = {
    "topic": TOPIC,
    "group": GROUP,
    "groupName": GROUP,
    "consumerGroup": GROUP,
    "producerGroup": "p",
    "clientID": "matrix@1",
    "clientId": "matrix@1",
    "queueId": 0,
    "queueOffset": 0,
    "offset": 0,
    "flag": 0,
    "maxMsgNums": 1,
    "sysFlag": 0,
    "commitOffset": 0,
    "suspendTimeoutMillis": 0,
    "subVersion": 0,
    "subscription": "*",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 4,
    "bornTimestamp": 1_700_000_000_000,
    "properties": "",
    "delayLevel": 0,
    "originTopic": TOPIC,
    "key": "k",
    "maxNum": 1,
    "beginTimestamp": 0,
    "endTimestamp": 1,
    "timestamp": 0,
    "isForce": "true",
    "msgId": "x",
    "tranStateTableOffset": 0,
    "commitLogOffset": 0,
    "commitOrRollback": 0,
    "readQueueNums": 1,
    "writeQueueNums": 1,
    "perm": 6,
    "order": "false",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "source": "matrix",
    "follows": 0,
    "reaches": 1,
    "accessKey": "short",
    "globalWhiteAddrs": "10.0.0.1",
    "aclFileFullPath": "none",
    "a": "p",
    "b": TOPIC,
    "c": "TBW102",
    "d": 4,
    "e": 0,
    "f": 0,
    "g": 1_700_000_000_000,
    "h": 0,
    "i": "",
    "j": 0,
    "k": "false",
    "m": "false",
    "note": "as signed",
    "recallHandle": "x",
    "invisibleTime": 1000,
    "pollTime": 0,
    "bornTime": 1_700_000_000_000,
    "initMode": 0,
    "extraInfo": "x",
    "username": "somebody",
    "subject": "User:somebody",
}
# What would be gone, or another topic, for those who come later; and what a field is in this request alone.
_OTHERWISE: Final[Mapping[int, Mapping[str, object]]] = {
    314: {"srcGroup": GROUP, "destGroup": "cloned", "offline": "true"},
    315: {"statsName": "TOPIC_PUT_NUMS", "statsKey": TOPIC},
    321: {"index": 0, "count": 1},
    32001: {"writer": "w", "run": "r", "batch": 0, "attempt": "a", "number": 0},
    32002: {"writer": "w", "run": "r", "batch": 0},
    32003: {"member": 1},
    32004: {"member": 1},
    32006: {"bootTimestamp": 1},
    17: {"topic": "Made"},
    215: {"topic": "Doomed"},
    207: {"groupName": "doomed"},
}
_OF_A_MESSAGE: Final = (33, 36)


def play(port: int, codes: Iterable[int] = CODES) -> dict[str, dict[int, str]]:
    """Why each person is denied each request; "" is allowed, "unserved" code 3, which the broker says to everybody."""
    found: dict[str, dict[int, str]] = {}
    with ExitStack() as stack:
        stored = _store_a_message(port)
        for person in PEOPLE:
            wire = stack.enter_context(_From(person.address, port))
            found[person.name] = {code: _ask(wire, person, code, stored) for code in codes}
    return found


def signed(fields: Mapping[str, object], body: bytes, access_key: str, secret_key: str) -> dict[str, object]:
    """The fields with those that a client adds to them."""
    whole = {name: str(value) for name, value in fields.items()} | {"AccessKey": access_key}
    content = "".join(whole[name] for name in sorted(whole)).encode() + body
    signature = b64encode(hmac.digest(secret_key.encode(), content, "sha1")).decode()
    return {**whole, "Signature": signature}


def record() -> dict[str, dict[int, str]]:
    """What Apache's 4.9.7 answers. Raises: PeerMissing."""
    with tempfile.TemporaryDirectory() as folder, ApacheNamesrv("4.9.7") as namesrv:
        broker = ApacheBroker("4.9.7", namesrv.address, Path(folder), {**SETTINGS, "aclEnable": "true"})
        (broker.home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
        with broker:
            return play(broker.port)


def save(found: Mapping[str, Mapping[int, str]]) -> None:
    """Keep a recording: the reasons, and for each code their numbers in the order of the people."""
    reasons = sorted({reason for answers in found.values() for reason in answers.values()})
    rows = {code: [reasons.index(found[person.name][code]) for person in PEOPLE] for code in CODES}
    lines = ",\n".join(f'  "{code}": {json.dumps(row)}' for code, row in rows.items())
    people = json.dumps([person.name for person in PEOPLE])
    head = json.dumps(reasons, indent=2, ensure_ascii=False)
    RECORDING.write_text(f'{{"people": {people},\n"reasons": {head},\n"codes": {{\n{lines}\n}}}}\n')


def recorded() -> dict[str, dict[int, str]]:
    """What Apache's 4.9.7 answered when it was recorded."""
    kept = json.loads(RECORDING.read_text())
    return {
        name: {int(code): kept["reasons"][row[at]] for code, row in kept["codes"].items()}
        for at, name in enumerate(kept["people"])
    }


class _From(Wire):
    """A connection from another address of this machine."""

    def __init__(self, address: str, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), SILENCE_S, (address, 0))


def _store_a_message(port: int) -> int:
    """The log offset of a record of the topic."""
    with _From("127.0.0.12", port) as wire:
        reply = wire.ask(310, _FIELDS, b"the first")
    assert reply.code == 0, reply.remark
    return int(reply.fields["msgId"][16:], 16)


def _ask(wire: Wire, person: Person, code: int, stored: int) -> str:
    fields = {**_FIELDS, **_OTHERWISE.get(code, {})}
    if code in _OF_A_MESSAGE:
        fields["offset"] = stored
    body = json.dumps(_BODIES[code]).encode() if code in _BODIES else b""
    if person.access_key:
        fields = signed(fields, body, person.access_key, person.secret_key)
    if person.changes == "field":
        fields["note"] = "changed"
    if person.changes == "body":
        body += b" "
    frame, opaque = request(code, fields, body)
    wire.send(frame)
    try:
        while (reply := wire.receive()).opaque != opaque or not reply.flag & 1:
            pass
    except TimeoutError:
        return ""  # it was handled, and wants no answer
    remark = reply.remark or ""
    if reply.code == 1 and remark.startswith(DENIED):
        return remark.removeprefix(DENIED).partition(", org.apache.")[0]
    return "unserved" if reply.code == 3 else ""


if __name__ == "__main__":
    save(record())
