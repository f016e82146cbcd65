"""No request writes a line of its own into the log: line feeds, escapes and long texts of peers are made harmless."""

import logging
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from sparrowmq.errors import SparrowError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.client_bodies import ConsumerBeat, Heartbeat, LockQueues, ProducerBeat
from sparrowmq.protocol.requests.request_table import ROWS, Role
from sparrowmq.protocol.signature import signer
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.protocol.wire.header import Request
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Session
from tests.broker.live import live_broker, send_request

EVIL = "x\nERROR forged \x1b[31m\u2028\x9b" + "y" * 300
VALID = {"topic": "orders", "consumer_group": "billing", "group": "billing", "group_name": "billing"}
VALID |= {"secret_key": "secretOfText", "white_remote_address": "10.0.0.1", "default_topic_perm": "DENY"}
VALID |= {"default_group_perm": "DENY", "topic_perms": "orders=PUB", "group_perms": "billing=SUB"}
VALID |= {"topic_filter_type": "SINGLE_TAG", "acl_file_full_path": "", "global_white_addrs": "10.0.0.1"}
ACCOUNTS = """
accounts:
- {accessKey: operator, secretKey: secretOfOperator, admin: true}
"""


def values(kind: type[Request[Any]], evil: str | None) -> dict[str, Any]:
    """The fields of a request: texts are valid, but one of them, or all with None, has what no log should show."""
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        text = str(field.type)
        if "str" in text:
            is_evil = evil is None or field.name == evil
            found[field.name] = EVIL if is_evil else VALID.get(field.name, "text")
        elif "bool" in text:
            found[field.name] = False
        elif "int" in text or field.required:
            found[field.name] = 0
    return found


def bodies() -> list[bytes]:
    consumer = ConsumerBeat(EVIL, subscription_data_set=[Subscription(EVIL, EVIL, kind=EVIL)])
    known = ConsumerBeat("billing", subscription_data_set=[Subscription("orders", EVIL, kind="SQL92")])
    return [
        b"",
        EVIL.encode(),
        b'{"attempts":{"a\\nb":1},"others":{}}',
        f"logLevel={EVIL}\n{EVIL}=1".encode(),
        Heartbeat(EVIL, [ProducerBeat(EVIL)], [consumer]).encode(),
        Heartbeat(EVIL, [ProducerBeat("producers")], [known]).encode(),
        LockQueues("billing", EVIL, []).encode(),
    ]


async def ask(session: Session, request: Request[Any], body: bytes) -> None:
    with suppress(SparrowError):
        await session.call(request, body, timeout_s=5)


async def play(sessions: list[Session], role: Role) -> None:
    """Send all requests of a role: with each text harmful, and with one."""
    for row in ROWS:
        if not row.served_by & role or row.header is None:
            continue
        texts = [each.name for each in msgspec.structs.fields(row.header) if "str" in str(each.type)]
        for evil in [None, *texts]:
            request = row.header(**values(row.header, evil))
            for body in bodies() if evil is None else [b""]:
                for session in sessions if evil is None else sessions[:1]:
                    await ask(session, request, body)


def unsafe(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Lines with characters that a terminal or a reader of lines would obey."""
    texts = [record.getMessage() for record in caplog.records if record.name.startswith("sparrowmq")]
    return [repr(text[:200]) for text in texts if not text.isprintable()]


@pytest.mark.slow
@pytest.mark.parametrize("with_accounts", [False, True], ids=["open", "accounts"])
async def test_no_field_of_any_request_reaches_the_log_as_it_is(tmp_path, caplog, with_accounts):
    caplog.set_level(logging.DEBUG)
    (tmp_path / "acl.yml").write_text(ACCOUNTS)
    acl = {"acl": True, "acl_file": tmp_path / "acl.yml"} if with_accounts else {}
    pools = [Pool(SystemClock(), sign=signer("operator", "secretOfOperator")), Pool(SystemClock())]
    pools.append(Pool(SystemClock(), sign=signer(EVIL, "some secret")))
    async with live_broker(tmp_path / "stores", property_filter=True, **acl) as live:
        sessions = [await pool.session(live.broker.address) for pool in pools]
        await ask(sessions[0], send_request("orders"), b"a message")
        await play(sessions, Role.BROKER)
        await play([await pool.session(live.cluster.namesrv) for pool in pools], Role.NAMESRV)
    for pool in pools:
        pool.close()
    assert unsafe(caplog) == []
    assert len(caplog.records) > 10
