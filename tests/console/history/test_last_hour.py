import pytest

from sparrowmq.console.samples import LastHour, load_last_hour, save_last_hour

NOW_MS = 10_000_000


def test_what_is_saved_is_loaded_without_what_is_older_than_an_hour(tmp_path):
    old = NOW_MS - 3_600_001
    rates = {"a": [(old, 1.0, 1.0), (NOW_MS - 5, 2.0, 3.0)], "b": [(old, 1.0, 1.0)]}
    save_last_hour(tmp_path, LastHour(rates, {"g": [(NOW_MS, 7), (NOW_MS + 1, 8)]}))
    assert load_last_hour(tmp_path, NOW_MS) == LastHour({"a": [(NOW_MS - 5, 2.0, 3.0)]}, {"g": [(NOW_MS, 7)]})


def test_an_absent_file_has_no_points(tmp_path, caplog):
    assert load_last_hour(tmp_path, NOW_MS) == LastHour() and not caplog.records


@pytest.mark.parametrize("content", [b"{", b"\xff\x00", b'{"rates": {"a": [[1]]}}', b'{"rates": 1}'])
def test_a_damaged_file_is_left_out_with_a_warning_and_replaced(tmp_path, caplog, content):
    (tmp_path / "last-hour.json").write_bytes(content)
    assert load_last_hour(tmp_path, NOW_MS) == LastHour()
    assert "the figures of the last hour are lost" in caplog.text
    caplog.clear()
    points = LastHour({}, {"g": [(NOW_MS, 7)]})
    save_last_hour(tmp_path, points)
    assert load_last_hour(tmp_path, NOW_MS) == points and not caplog.records


def test_a_folder_that_cannot_be_written_to_is_only_logged(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    save_last_hour(tmp_path / "file", LastHour())
    assert "not written" in caplog.text
