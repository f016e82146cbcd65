"""The names that an editor offers for public classes: each is one that the documentation names, and no internal one."""

import inspect
import re
from pathlib import Path

import pytest

import sparrowmq
import sparrowmq.sync
from sparrowmq.client.popping.popped_message import PoppedMessage
from sparrowmq.testing import Cluster, ManualClock

ROOT = Path(__file__).parents[2]
CLASSES = [
    sparrowmq.Admin,
    sparrowmq.Client,
    sparrowmq.Consumer,
    sparrowmq.Credentials,
    sparrowmq.Hooks,
    sparrowmq.Message,
    sparrowmq.MessageQueue,
    sparrowmq.Producer,
    sparrowmq.ProducerSettings,
    sparrowmq.PullConsumer,
    sparrowmq.ReceivedMessage,
    sparrowmq.SendResult,
    sparrowmq.SimpleConsumer,
    sparrowmq.Transaction,
    PoppedMessage,
    sparrowmq.sync.SyncAdmin,
    sparrowmq.sync.SyncClient,
    sparrowmq.sync.SyncConsumer,
    sparrowmq.sync.SyncProducer,
    sparrowmq.sync.SyncPullConsumer,
    sparrowmq.sync.SyncSimpleConsumer,
    sparrowmq.sync.SyncTransaction,
    Cluster,
    ManualClock,
]

# Names for programs that no page has: the docstrings describe them.
BESIDES = {
    *("change_group", "change_topic", "delete_group", "delete_topic", "examine", "forget_broker"),
    *("unsubscribe", "offset_at", "security_token", "call_later", "now_ms"),
    *("delay_ms", "deliver_at_ms", "is_delayed", "is_timed", "wait_stored"),
    *("is_current", "is_unsettled", "store_size", "store_timestamp_ms"),
}
# Ordinary words, which the pages have anyway.
INTERNAL = {
    *("beat", "members_changed", "client_left", "running", "positions_in", "deliver_once"),
    *("deliver_to", "settle_in", "is_from", "cancel", "handle_in_threads", "check_in_threads", "wait_closed"),
}


def documented() -> set[str]:
    """The words of the pages for programs, and of the examples."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    return set(re.findall(r"[a-z_]+", " ".join(page.read_text() for page in pages)))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_editor_offers_no_internals(cls):
    names = {name for name, _ in inspect.getmembers(cls) if not name.startswith("_")}
    assert names - documented() - BESIDES == set()
    assert not names & INTERNAL


def test_an_editor_offers_the_public_names_of_the_package():
    assert set(dir(sparrowmq)) == set(sparrowmq.__all__)
