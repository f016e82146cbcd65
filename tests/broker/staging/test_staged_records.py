"""Records of the staging topic that no broker of ours has written."""

import msgspec
import pytest

from sparrowmq.broker.staging import staged_batches
from sparrowmq.broker.staging.staged_batches import StagedPart, StagedRecord, read
from sparrowmq.broker.staging.writers import CommitBody, SavedWriter, Source
from sparrowmq.protocol.messages import batch as batches
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.properties import render
from sparrowmq.protocol.names import STAGED_TOPIC
from tests.broker.staging.stagers import parts
from tests.records import encoded

BODY = batches.encode(parts("a", "b"))
SAID = staged_batches.properties_of("part", Source("w", "r", 7, "owner")) | (
    staged_batches.properties_of_part(StagedPart("t0", 3, ("T", 1)))
)
FOREIGN = [
    *[(SAID | {name: None}, BODY, name) for name in SAID if name != "STAGED_OWNER"],
    *[
        (SAID | {name: text}, BODY, "invalid literal|limit")
        for name in ("STAGED_BATCH", "STAGED_NUMBER", "STAGED_QUEUE")
        for text in ("x", "--1", "1.5", "9" * 5000)
    ],
    (SAID | {"STAGED_KIND": "other"}, BODY, "not a kind"),
    *[
        (SAID | {"STAGED_KIND": kind}, body, ".")
        for kind in ("commit", "kept")
        for body in (b"", b"{", b"null", b"\xff", b'{"attempts":[]}', b'{"runs":["r"],"last_batch":1,"used_ms":1e30}')
    ],
]


def stored(said, body):
    properties = render({name: text for name, text in said.items() if text is not None}).encode()
    return record.decode(encoded(STAGED_TOPIC, 0, body, properties))


@pytest.mark.parametrize(("said", "body", "why"), FOREIGN)
def test_record_that_no_broker_writes_is_refused(said, body, why):
    with pytest.raises((KeyError, ValueError, msgspec.DecodeError), match=why):
        read(stored(said, body))


def test_records_come_back_as_they_were_written():
    source = Source("w", "r", (1 << 63) - 1, "owner")
    part = StagedPart("t0", -(1 << 63) + 1, ("%DLQ%g", 65_534))
    said = staged_batches.properties_of("part", source) | staged_batches.properties_of_part(part)
    assert read(stored(said, BODY)) == StagedRecord("part", source, part)
    commit = CommitBody({"t0": 4}, {"T@1": 5}, {"b": {"t1": 1}}, "plan")
    kept = SavedWriter(["r"], -1, 5, msgspec.Raw(b'{"b":{"t1":1}}'), None, "plan")
    new = Source("w", "r", -1)
    assert read(stored(staged_batches.properties_of("commit", source), msgspec.json.encode(commit))) == (
        "commit",
        source,
        commit,
    )
    assert read(stored(staged_batches.properties_of("kept", new), msgspec.json.encode(kept))).content == kept
    for kind in ("open", "done"):
        assert read(stored(staged_batches.properties_of(kind, new), b"")) == StagedRecord(kind, new)
