"""The golden files are whole, tell nothing of where they were made, and load as README.md says."""

import re
import zlib

import pytest

from tests.golden import FOLDER, STORES, frames, parse_header, piece, pieces, scenarios
from tests.golden.record import Tape, address_swaps, masks_of_ports
from tests.interop.wire import request

TOO_MUCH = 500_000
MACHINE = re.compile(rb"/(root|home|work|Users)/|\.internal|192\.0\.2\.|C0000202")


@pytest.mark.parametrize("scenario", scenarios())
def test_every_scenario_is_a_row_of_whole_frames(scenario):
    found = frames(scenario)
    assert found, "an empty scenario shows nothing"
    for frame in found:
        assert int.from_bytes(frame.data[:4], "big") == len(frame.data) - 4
        assert frame.direction in "<>" and frame.peer in ("namesrv", "broker")
        assert len(frame.header) + len(frame.body) + 8 == len(frame.data)


@pytest.mark.parametrize("scenario", [name for name in scenarios() if not name.startswith("cpp")])
def test_every_reply_knows_its_request(scenario):
    replies = [frame for frame in frames(scenario) if not frame.is_request]
    assert replies and all(frame.answers is not None for frame in replies)


def test_no_golden_file_tells_where_it_was_made():
    files = [file for folder in (FOLDER, STORES) for file in folder.rglob("*") if file.is_file()]
    told = [file.name for file in files if MACHINE.search(file.read_bytes())]
    assert not told
    assert sum(file.stat().st_size for file in files) < TOO_MUCH


def test_a_stored_body_matches_its_checksum():
    pulled = [frame for frame in frames("java-4.9.8/push") if frame.answers == 11 and frame.code == 0]
    assert pulled
    for frame in pulled:
        body_size = int.from_bytes(frame.body[84:88], "big")
        body = frame.body[88 : 88 + body_size]
        assert zlib.crc32(body) & 0x7FFFFFFF == int.from_bytes(frame.body[8:12], "big")


def test_a_missing_scenario_names_those_that_exist():
    with pytest.raises(FileNotFoundError, match=r"java-4\.9\.8/send"):
        frames("nonsense")


def test_pieces_inverts_piece():
    frame, _ = request(105, {"topic": "T"})
    pack = piece(">", "namesrv", 7, frame) + piece("<", "broker", 300, frame)
    assert list(pieces(pack)) == [(">", "namesrv", 7, frame), ("<", "broker", 300, frame)]


def test_a_binary_header_is_understood():
    frame = frames("java-4.9.8-binary/send")[0]
    assert frame.data[4] == 1 and parse_header(frame.data)[0] == 105


def test_the_tape_masks_ports_and_mends_lengths(monkeypatch, tmp_path):
    monkeypatch.setattr("tests.golden.record.FOLDER", tmp_path)
    monkeypatch.setattr("tests.golden.FOLDER", tmp_path)
    tape = Tape([("a-much-longer-name", "short")])
    tape.masks += masks_of_ports(43210)
    frame, _ = request(17, {"addr": "127.0.0.1:43210", "id": "7F0000010000A8CA"}, b"a-much-longer-name")
    tape.keep(">", "broker", 1, frame)
    tape.keep(">", "broker", 1, request(106)[0])
    tape.cut("masked", lambda code: code != 106)
    (kept,) = frames("masked")
    assert kept.body == b"short"
    assert b'"addr":"127.0.0.1:10911"' in kept.header and b'"id":"7F00000100002A9F"' in kept.header


def test_address_swaps_keep_every_length():
    assert all(len(old) == len(new) for old, new in address_swaps(43210, 10911))
