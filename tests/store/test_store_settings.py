import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.protocol import hosts
from sparrowmq.store.store_settings import Flush, StoreSettings


@pytest.mark.covers("S-STORE-03")
@pytest.mark.covers("S-STORE-01")
def test_sizes_are_those_of_java_if_nothing_is_set():
    settings = StoreSettings("store")
    assert settings.commit_log_file_size == 1_073_741_824
    assert settings.consume_queue_file_entries * 20 == 6_000_000
    assert 40 + settings.index_slots * 4 + settings.index_entries * 20 == 420_000_040
    assert (settings.retention_hours, settings.delete_when) == (72, "04")
    assert (settings.disk_clean_ratio, settings.disk_force_ratio, settings.disk_full_ratio) == (
        0.75,
        0.85,
        0.9,
    )


def test_an_answer_means_on_disk_and_records_carry_a_crc_unless_it_is_set_otherwise():
    assert StoreSettings("store").flush is Flush.SYNC
    assert StoreSettings("store").property_crc


def test_the_delays_are_the_eighteen_of_java():
    assert [delay_ms // 1000 for delay_ms in StoreSettings("store").delay_levels_ms] == [
        *(1, 5, 10, 30),
        *(60 * minutes for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
        *(3600, 7200),
    ]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ({"commit_log_file_size": 0}, "mappedFileSizeCommitLog: no message fits"),
        ({"commit_log_file_size": 98}, "mappedFileSizeCommitLog: no message fits"),
        ({"commit_log_file_size": 1000}, "mappedFileSizeCommitLog must be a multiple of 512"),
        ({"consume_queue_file_entries": 0}, "at least one entry"),
        ({"index_slots": 0}, "an index file must hold"),
        ({"index_entries": 1}, "an index file must hold"),
        ({"flush_interval_ms": 0}, "flushIntervalCommitLog must be positive"),
        ({"store_host": b"127.0.0.1"}, "store_host takes 8 bytes or 20"),
    ],
)
def test_a_setting_that_cannot_work_is_refused(words, complaint):
    with pytest.raises(ConfigError, match=complaint):
        StoreSettings("store", **words)


def test_a_host_may_have_an_ipv6_address():
    host = hosts.pack("[::1]:10911")
    assert StoreSettings("store", store_host=host).store_host == host


def test_the_layout_knows_both_paths(tmp_path):
    layout = StoreSettings(tmp_path, commit_log_path=tmp_path / "log").layout
    assert layout.root == str(tmp_path)
    assert layout.commit_log == str(tmp_path / "log")
