"""Which answers of which releases are denials."""

from __future__ import annotations

import pickle

import pytest

from sparrowmq.errors import AccessDenied
from sparrowmq.remoting.request_in_flight import remote_error


@pytest.mark.parametrize(
    ("code", "remark", "is_denial"),
    [
        (1, "org.apache.rocketmq.acl.common.AclException: No accessKey is configured, org...", True),
        (1, "the store is busy", False),
        (16, "User:shop has no permission to access Topic:prices from 10.0.0.1, no matched policies.", True),
        (16, "User:shop is not found.", True),
        (16, "User:shop is disabled.", True),
        (16, "username cannot be null.", True),
        (16, "check signature failed.", True),
        (16, "the broker[10.0.0.1] sending message is forbidden", False),
        (16, None, False),
    ],
)
def test_a_denial_of_any_release_is_one_and_not_tried_again(code: int, remark: str | None, is_denial: bool) -> None:
    error = remote_error(code, remark)
    assert isinstance(error, AccessDenied) == is_denial
    assert (error.code, error.remark) == (code, remark or "")
    assert error.retriable == (not is_denial)
    assert isinstance(pickle.loads(pickle.dumps(error)), type(error))
