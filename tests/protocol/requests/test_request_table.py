"""The table: complete, without contradictions, and every row's header usable."""

from typing import get_args

import msgspec
import pytest

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.requests import admin_headers, headers, namesrv_headers, pop_headers, user_headers
from sparrowmq.protocol.requests.request_table import (
    BY_CODE,
    ROWS,
    Access,
    Role,
    Row,
)
from sparrowmq.protocol.wire.header import Header, Request, from_fields
from tests.protocol.requests.wire_names import comes_back

WITH_HEADER = [row for row in ROWS if row.header]


def test_every_code_has_exactly_one_row() -> None:
    assert [row.code for row in ROWS] == sorted(RequestCode)
    assert all(BY_CODE[row.code] is row for row in ROWS)


def test_a_row_is_served_or_says_why_not() -> None:
    for row in ROWS:
        assert bool(row.served_by) != bool(row.unserved), row.name
        assert row.header or row.unserved, row.name
        assert not row.unserved or row.unserved.split(":")[0] in ("not yet", "never", "refused by design"), row.name


@pytest.mark.parametrize("row", WITH_HEADER, ids=lambda row: row.name)
def test_the_header_and_the_reply_of_a_row_travel(row: Row) -> None:
    assert row.header and row.reply
    assert row.header.code == row.code
    assert comes_back(row.header) and comes_back(row.reply)


def test_every_request_header_stands_in_the_table() -> None:
    found = {
        kind
        for module in (headers, namesrv_headers, admin_headers, pop_headers, user_headers)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Request) and kind is not Request
    }
    assert found == {row.header for row in WITH_HEADER}


def test_every_reply_stands_in_the_table() -> None:
    found = {
        kind
        for module in (headers, namesrv_headers, admin_headers, pop_headers, user_headers)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Header) and not issubclass(kind, Request) and kind is not Header
    }
    assert found == {row.reply for row in WITH_HEADER}


def test_what_only_admins_may_do() -> None:
    assert all(BY_CODE[code].access is Access.ADMIN for code in (17, 25, 200, 207, 215, 318))


def test_a_row_names_the_fields_that_hold_its_resource() -> None:
    named = {row.code: (row.topic, row.group) for row in ROWS if row.served_by}
    assert named[RequestCode.PULL_MESSAGE] == ("topic", "consumer_group")
    assert named[RequestCode.SEND_MESSAGE_V2] == ("topic", "")
    assert named[RequestCode.CONSUMER_SEND_MSG_BACK] == ("", "group")
    assert named[RequestCode.INVOKE_BROKER_TO_RESET_OFFSET] == ("topic", "group")
    assert named[RequestCode.DELETE_SUBSCRIPTIONGROUP] == ("", "group_name")
    assert named[RequestCode.GET_BROKER_CONFIG] == ("", "")


def test_who_may_write_or_read_a_thing_is_told_by_the_header_or_asked_by_the_handler() -> None:
    by_body = {
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.QUERY_ASSIGNMENT,
    }
    for row in ROWS:
        if row.served_by and row.access in (Access.READ, Access.WRITE):
            assert row.topic or row.group or row.code in by_body, row.name
    assert all(row.topic for row in ROWS if row.served_by and row.access is Access.WRITE)


SENDS = {10, 310, 320, 324, 325}


def test_settings_are_changed_by_operators_alone() -> None:
    for code in (RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG):
        assert BY_CODE[code].served_by is not Role.NOBODY and BY_CODE[code].access is Access.ADMIN


def test_a_broker_hands_a_question_on_to_the_client() -> None:
    assert BY_CODE[307].served_by == Role.BROKER | Role.CLIENT


@pytest.mark.parametrize("row", [row for row in WITH_HEADER if row.code not in SENDS], ids=lambda row: row.name)
def test_no_number_in_a_header_is_larger_than_javas(row: Row) -> None:
    """A larger one would reach a handler, and from there a file that Java cannot read. Records check those of sends."""
    assert row.header is not None
    fields = {each.encode_name: "1" for each in msgspec.structs.fields(row.header)}
    for each in msgspec.structs.fields(row.header):
        kinds = [getattr(kind, "__origin__", kind) for kind in (get_args(each.type) or (each.type,))]
        if int in kinds:
            for value in (1 << 63, 1 << 70, -1 << 70):
                with pytest.raises(RemoteProtocolError, match="a header field has a wrong value"):
                    from_fields(row.header, fields | {each.encode_name: str(value)})
