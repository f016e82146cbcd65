"""Errors as statuses."""

import pytest

from sparrowmq.errors import (
    AccessDenied,
    BrokerUnreachable,
    ConfigError,
    NoRoute,
    RemoteError,
    RequestTimeout,
)
from sparrowmq.grpc.statuses import Status, refusal, status, status_of


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (refusal(Status.ILLEGAL_TOPIC, "why"), 40002),
        (RemoteError(17, "no topic"), 40402),
        (RemoteError(26), 40403),
        (RemoteError(2, "busy"), 42900),
        (RemoteError(13, "the properties are too long"), 40000),
        (RemoteError(16), 40300),
        (RemoteError(208, "no handle"), 40013),
        (RemoteError(1, "x"), 50001),
        (RemoteError(9999, "x"), 50001),
        (AccessDenied("no"), 40100),
        (NoRoute("t", None), 40402),
        (RequestTimeout("a", "b", 1), 50400),
        (BrokerUnreachable("a", "b"), 50002),
        (ConfigError("c"), 40000),
    ],
)
def test_error_has_its_status(error, code):
    assert status_of(error)[0] == code
    assert status_of(error)[1]


def test_status_is_ok_unless_it_says_otherwise():
    assert (status().code, status().message) == (20000, "OK")


def test_java_5_0_5_knows_every_status_but_one_that_apaches_proxy_has_too():
    ranges = (range(20000, 20001), range(30000, 30001), range(40000, 40019), range(40400, 40404))
    known = {*(code for codes in ranges for code in codes), 40100, 40300, 41300, 41301, 42900, 43101}
    known |= {50001, 50002, 50100, 50400, 50401, 50402, 50500}
    assert set(Status) - known == {Status.MESSAGE_BODY_EMPTY}
