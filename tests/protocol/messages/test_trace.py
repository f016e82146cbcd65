"""Trace records, in the bytes that Java's client writes."""

import pytest

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.messages.trace import (
    EndTransactionTrace,
    PubTrace,
    Reaction,
    SubAfterTrace,
    SubBeforeTrace,
    TracedKind,
    decode,
    encode,
)

PUB = PubTrace(
    17, "g", "orders", "ID", "paid", "k1 k2", "10.0.0.1:10911", 5, 3, TracedKind.NORMAL, "OFFSET", True, "eu"
)
BEFORE = SubBeforeTrace(18, "c", "R", "ID", 2, None)
AFTER = SubAfterTrace("R", "ID", 4, False, "k1", Reaction.EXCEPTION, 19, "c")
END = EndTransactionTrace(
    20, "g", "orders", "ID", None, None, "10.0.0.1:10911", "TX", "COMMIT_MESSAGE", True, region="eu"
)
# As TraceDataEncoder of 4.9.8 writes them.
RECORDS = [
    (PUB, "Pub|17|eu|g|orders|ID|paid|k1 k2|10.0.0.1:10911|5|3|0|OFFSET|true;"),
    (BEFORE, "SubBefore|18|DefaultRegion|c|R|ID|2|null;"),
    (AFTER, "SubAfter|R|ID|4|false|k1|2|19|c;"),
    (END, "EndTransaction|20|eu|g|orders|ID|null|null|10.0.0.1:10911|2|TX|COMMIT_MESSAGE|true;"),
]
DELAYED = PubTrace(17, "g", "t", "ID", None, None, "h:1", 5, 3, TracedKind.DELAYED, "", True, "eu")
OLD = [
    ("Pub|17|eu|g|t|ID|||h:1|5|3|3|true;", DELAYED),
    ("SubAfter|R|ID|4|true|;", SubAfterTrace("R", "ID", 4, True, None, Reaction.SUCCESS)),
    ("SubAfter|R|ID|4|true|k|4;", SubAfterTrace("R", "ID", 4, True, "k", Reaction.FAILED)),
    ("SubBefore|18|eu|c|R|ID|0;", SubBeforeTrace(18, "c", "R", "ID", 0, None, "eu")),
]


def wire(text: str) -> str:
    return text.replace("|", "\x01").replace(";", "\x02")


@pytest.mark.parametrize(("trace", "text"), RECORDS)
def test_a_record_is_written_as_java_does_and_read_back(trace, text):
    assert encode(trace) == wire(text)
    assert decode(wire(text)) == [trace]


def test_a_body_holds_many_records_and_kinds_unknown_here_are_left_out():
    body = wire("".join(text for _, text in RECORDS) + "Recall|17|eu|g|t|ID|true;")
    assert decode(body) == [trace for trace, _ in RECORDS]
    assert decode("") == []


@pytest.mark.parametrize(("text", "trace"), OLD)
def test_what_older_clients_leave_out_is_absent(text, trace):
    assert decode(wire(text)) == [trace]


DAMAGED = [
    "Pub|17;",
    "Pub|x|eu|g|t|ID|||h|5|3|0|true;",
    "SubAfter|R|ID|4|true|k|99;",
    "SubBefore|;",
    "EndTransaction|20|eu;",
]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_record_is_an_error(text):
    with pytest.raises(RemoteProtocolError, match="cannot be read"):
        decode(wire(text))
