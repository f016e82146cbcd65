from contextlib import nullcontext
from dataclasses import replace

import pytest
from nicegui import ui

from sparrowmq.console.layout.trouble_panel import _below, _trees, left_out_text, since_text, suffering_text
from sparrowmq.console.message_body import time_text
from sparrowmq.console.troubles import Trouble
from tests.console.layout.seeing import page

TROUBLE = Trouble("no_answer", True, "b", "broker b", "it is silent", "start it", 1_000)


def test_the_beginning_is_exact_or_a_limit():
    assert since_text(TROUBLE) == f"since {time_text(1_000)}"
    older = Trouble("no_answer", True, "b", "broker b", "it is silent", "start it", 1_000, is_older=True)
    assert since_text(older).startswith("at least since ")


def test_what_is_left_out_is_named_with_its_queues():
    assert left_out_text({}) == ""
    assert left_out_text({"a": 4, "b": 0}) == "Left out, because no master answers: 4 queues of a, those of b"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing", "4 queues cannot be used, of the topics"),
        ("unregistered", "4 queues cannot be used, of the topics"),
        ("disk_full", "4 queues take no messages, but can be read, of the topics"),
        ("store_failed", "4 queues take no messages, but can be read, of the topics"),
        ("certificate", "4 queues are at this broker, of the topics"),
        ("no_slave", "4 queues are at this broker, of the topics"),
    ],
)
def test_queues_that_still_work_are_not_called_useless(name, words):
    assert suffering_text(replace(TROUBLE, name=name, queues=4)) == words


def test_many_effects_are_folded_below_their_cause():
    cause = replace(TROUBLE, subject="name server h:1", name="name_server_dead")
    effects = [
        replace(TROUBLE, subject=f"broker {number}", name="name_server_away", cause=cause.title) for number in range(5)
    ]
    other = replace(TROUBLE, subject="broker x", name="drained")
    assert _trees([cause, *effects, other]) == [[cause, *effects], [other]]
    with page():
        assert isinstance(_below(4), nullcontext) and isinstance(_below(5), ui.expansion)
