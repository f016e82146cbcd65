from __future__ import annotations

from pathlib import Path

from sparrowmq.admin.resend import LeftOut
from sparrowmq.cli.store import Draft
from sparrowmq.protocol.messages.properties import render
from sparrowmq.protocol.names import TIMER_TOPIC
from tests.records import encoded
from tests.store.care.test_piece_reading import piece

ORDERS = {"REAL_TOPIC": "orders", "REAL_QID": "0", "TIMER_OUT_MS": "9"}


def log(folder: Path, begin: int, *records: tuple[str, str, dict[str, str], int]) -> Path:
    """Write records of these topics, ids, properties and tries, one after the other."""
    content = b""
    for topic, unique_id, properties, tries in records:
        text = render({"UNIQ_KEY": unique_id} | properties).encode()
        content += encoded(topic, properties=text, physical_offset=begin + len(content), reconsume_times=tries)
    return piece(folder, begin, content, "forked")


def ids(draft: Draft) -> list[str]:
    return [message.unique_id for _, message in draft.messages(draft.positions)]


def test_of_several_tries_the_last_one_is_chosen_and_of_copies_one(tmp_path: Path) -> None:
    retries: list[tuple[str, str, dict[str, str], int]] = [("%RETRY%g", "U1", {}, tries) for tries in (1, 2, 1)]
    draft = Draft([log(tmp_path, 0, *retries, ("orders", "U2", {}, 0), ("orders", "U2", {}, 0))])
    assert [(message.unique_id, message.stored.reconsume_times) for _, message in draft.messages(draft.positions)] == [
        ("U1", 2),
        ("U2", 0),
    ]
    assert draft.left_out == {LeftOut.COPY: 3} and draft.readable == 5


def test_a_message_that_its_own_account_recalled_is_not_chosen(tmp_path: Path) -> None:
    own, others = {"TIMER_OWNER": "billing"}, {"TIMER_OWNER": "others"}
    timers = [(TIMER_TOPIC, name, ORDERS | own, 0) for name in ("U1", "U2")]
    recalls = [
        (TIMER_TOPIC, "R", ORDERS | owner | {"TIMER_DEL_UNIQKEY": f"orders+{name}"}, 0)
        for name, owner in (("U1", own), ("U2", others))
    ]
    draft = Draft([log(tmp_path, 0, *timers, *recalls)])
    assert ids(draft) == ["U2"]
    assert draft.left_out == {LeftOut.RECALL: 2, LeftOut.RECALLED: 1}


def test_several_files_are_read_in_the_order_of_the_log_and_each_once(tmp_path: Path) -> None:
    files = [log(tmp_path, begin, ("orders", f"U{begin}", {}, 0)) for begin in (0, 5000, 90_000)]
    assert ids(Draft([files[2], files[0], files[1], files[0]])) == ["U0", "U5000", "U90000"]
    assert ids(Draft(files, ["other"])) == []
