"""Every error is in the tree that its page draws, and tells what to do."""

import re
from pathlib import Path

import pytest

from sparrowmq import errors
from sparrowmq.errors import (
    BrokerUnreachable,
    ChangeFailed,
    ConnectionClosed,
    CorruptRecord,
    NoRoute,
    RemoteError,
    RequestTimeout,
    SparrowError,
    StoreLocked,
)

PAGE = (Path(__file__).parents[1] / "docs/use/errors.md").read_text()
CLASSES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SparrowError)]


def drawn_tree() -> dict[str, str]:
    """Each class in the drawing of docs/use/errors.md, and the class above it."""
    above = {0: "SparrowError"}
    parents: dict[str, str] = {}
    for line in PAGE[PAGE.index("\nSparrowError  ") :].splitlines():
        match = re.match(r"([│├└─ ]*─ )([A-Z]\w+)(?:  |$)", line)
        if match:
            depth = len(match[1])
            parents[match[2]] = above[max(known for known in above if known < depth)]
            above[depth] = match[2]
    return parents


def test_the_drawing_shows_every_class_in_its_place() -> None:
    real = {kind.__name__: kind.__mro__[1].__name__ for kind in CLASSES if kind is not SparrowError}
    assert drawn_tree() == real


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (BrokerUnreachable("10.0.0.1:10911", "refused"), ["10.0.0.1:10911", "refused", "brokerIP1"]),
        (ConnectionClosed("h:1", "reset"), ["h:1", "reset", "unknown"]),
        (RequestTimeout("h:1", "PullMessage", 3.0), ["h:1", "PullMessage", "3 s"]),
        (NoRoute("orders", "h:9876"), ["'orders'", "h:9876", "autoCreateTopicEnable"]),
        (StoreLocked("/data"), ["/data", "storePathRootDir"]),
        (CorruptRecord("000", 12, "a body of 3 bytes"), ["000", "offset 12", "a body of 3 bytes"]),
        (RemoteError(17, "no topic"), ["code 17", "no topic"]),
        (RemoteError(1), ["no remark"]),
    ],
)
def test_an_error_says_what_happened(error: SparrowError, words: list[str]) -> None:
    assert all(word in str(error) for word in words), str(error)


def test_what_may_succeed_elsewhere_is_told_by_its_code() -> None:
    assert RemoteError(14).retriable and RemoteError(2).retriable
    assert not RemoteError(13).retriable and not RemoteError(26).retriable


def test_a_peers_remark_cannot_write_lines_of_its_own():
    error = RemoteError(1, "no\n2026-01-01 INFO all is well" + "x" * 100_000)
    assert "\n" not in str(error) and len(str(error)) < 1100
    assert error.remark.startswith("no\n")


def test_change_that_a_broker_made_but_could_not_confirm_is_not_said_to_be_undone():
    """The change of a user is in effect at a master whose disk is full, but not safe."""
    error = ChangeFailed("changing user app", [], {"a": RemoteError(1, "it is in effect here, but not yet safe")})
    assert str(error).endswith("not yet safe; no broker has confirmed it")
