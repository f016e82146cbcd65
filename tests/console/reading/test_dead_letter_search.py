import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.requests import Request

import sparrowmq
from sparrowmq.console.pages.dead_letters import DeadLetterFilter, exporting
from sparrowmq.protocol.names import dlq_topic
from tests.hostile_bodies import send_damaged


@pytest.fixture
async def billing(two, look):
    await look.admin.create_topic(dlq_topic("billing"), queues=1)
    async with sparrowmq.connect(two.namesrv) as mq:
        for number in range(50):
            text = b"%d " % number + b"text " * 2000  # goes compressed
            await mq.send(dlq_topic("billing"), text, tag="odd" if number % 2 else "even")
        await mq.send(dlq_topic("billing"), b"\xff\x00", tag="bytes")
    return look


async def ask(look, query: str, session: Any = None) -> tuple[int, list[dict[str, Any]] | str]:
    """The status, and the lines or what was said instead."""
    scope: dict[str, Any] = {"type": "http", "method": "GET", "query_string": query.encode(), "headers": []}
    scope["state"] = {"session": session or SimpleNamespace(is_alive=True)}
    answer = cast(Any, await exporting(look)(Request(scope)))
    if answer.status_code != 200:
        return answer.status_code, answer.body.decode()
    assert 'filename="dead-letters-billing.jsonl"' in answer.headers["content-disposition"]
    return 200, [json.loads(line) async for line in answer.body_iterator]


async def test_all_that_fit_the_address_are_exported(billing):
    _, every = await ask(billing, "group=billing")
    assert len(every) == 51 and sum(cast(Any, each).get("body_hex") == "ff00" for each in every) == 1
    _, odd = await ask(billing, "group=billing&tag=odd")
    assert len(odd) == 25
    _, none = await ask(billing, "group=billing&topic=orders")
    assert none == []
    _, later = await ask(billing, "group=billing&since=2126-01-01")
    assert later == []


async def test_a_text_is_looked_for_in_what_was_sent_and_not_in_what_lies_there_compressed(billing):
    _, found = await ask(billing, "group=billing&text=7+text")
    assert {cast(Any, each)["body"][:2].strip() for each in found} == {"7", "17", "27", "37", "47"}


async def test_a_letter_that_cannot_be_decompressed_is_exported_as_it_is_stored(look):
    await look.admin.create_topic(dlq_topic("billing"), queues=1)
    await send_damaged(look.client, dlq_topic("billing"))
    _, found = await ask(look, "group=billing")
    assert [(cast(Any, each)["body"], "zlib" in cast(Any, each)["body_trouble"]) for each in found] == [
        ("no zlib", True)
    ]


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [("group=billing&since=x", 400, "since: 'x' is not a time"), ("group=a%20b", 400, "a b")],
)
async def test_what_cannot_be_asked_is_told(look, query, status, said):
    told = await ask(look, query)
    assert told[0] == status and said in told[1]


async def test_an_export_ends_with_its_session_and_says_so(billing):
    lines = (await ask(billing, "group=billing", SimpleNamespace(is_alive=False)))[1]
    assert lines == [{"broken_off": "you are logged out; log in again"}]


def test_an_address_without_filters_wants_all():
    assert DeadLetterFilter.from_query({"group": "billing", "tag": " "}) == DeadLetterFilter("billing")
