"""sparrowmq.spark.worker: which refusals may pass."""

import pytest

from sparrowmq.errors import AccessDenied, NetworkError, RemoteError
from sparrowmq.spark.worker import may_go_elsewhere, may_pass, refuses_filter

NO_SQL = "The broker does not support consumer to filter message by SQL92"


@pytest.mark.parametrize(
    ("refusal", "passes"),
    [
        (RemoteError(1, "queue files are being loaded"), True),
        (RemoteError(2, "[TIMEOUT_CLEAN_QUEUE]broker busy"), True),
        (RemoteError(14, "shutting down"), True),
        (RemoteError(1, NO_SQL), False),
        (RemoteError(23, "parse the consumer's subscription failed"), False),
        (RemoteError(16, "no permission"), False),
        (RemoteError(17, "no topic"), False),
        (AccessDenied("no"), False),
    ],
)
def test_what_may_pass_is_tried_again(refusal, passes):
    assert may_pass(refusal) is passes


def test_a_refused_filter_is_known_as_such():
    assert refuses_filter(RemoteError(1, NO_SQL)) and refuses_filter(RemoteError(23, ""))
    assert not refuses_filter(RemoteError(1, "other")) and not refuses_filter(RemoteError(16, NO_SQL))


def test_another_broker_may_take_what_one_does_not():
    assert may_go_elsewhere(RemoteError(16, "")) and may_go_elsewhere(RemoteError(17, ""))
    assert not may_go_elsewhere(RemoteError(2, "")) and not may_go_elsewhere(NetworkError("x"))
