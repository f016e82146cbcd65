"""What a process wrote is read, whole lines only, each once."""

from pathlib import Path

from tests.client.stress.ledger import Doubted, Entered, Ledger, Pen, Reader, Sent


def test_what_is_written_is_read_once(tmp_path: Path) -> None:
    pen, other, reader = Pen(tmp_path / "a.jsonl"), Pen(tmp_path / "b.jsonl"), Reader(tmp_path)
    pen.write(Sent("m", "plain", 1.0))
    assert list(reader.fresh()) == [Sent("m", "plain", 1.0)]
    other.write(Entered("b", 2.0))
    pen.write(Doubted("m", "SendFailed", 3.0))
    assert list(reader.fresh()) == [Doubted("m", "SendFailed", 3.0), Entered("b", 2.0)]
    assert list(reader.fresh()) == []


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    Pen(tmp_path / "whole.jsonl").write(Entered("m1", 1.0))
    line = (tmp_path / "whole.jsonl").read_bytes()
    (tmp_path / "whole.jsonl").unlink()
    reader, file = Reader(tmp_path), tmp_path / "half.jsonl"
    file.write_bytes(line[:10])
    assert list(reader.fresh()) == []
    file.write_bytes(line)
    assert list(reader.fresh()) == [Entered("m1", 1.0)]


def test_a_ledger_knows_what_was_sent_and_who_came() -> None:
    ledger = Ledger()
    for line in (Sent("m", "plain", 1.0), Doubted("m", "SendFailed", 2.0), Entered("m1", 3.0)):
        ledger.add(line)
    assert ledger.sent.keys() == ledger.doubted.keys() == {"m"}
    assert ledger.entered == {"m1": 3.0}
