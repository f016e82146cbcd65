import pytest

from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.errors import ConfigError


@pytest.mark.covers("S-PROD-03", "S-PROD-11", "S-PROD-12")
@pytest.mark.covers("S-PROD-10")
@pytest.mark.covers("S-PROD-04")
def test_what_java_takes_is_taken():
    usual = ProducerSettings()
    assert (usual.retries, usual.timeout_s, usual.retry_not_stored) == (2, 3.0, False)
    assert (usual.compress_over_bytes, usual.max_bytes) == (4096, 4 * 1024 * 1024)


@pytest.mark.parametrize("name", ["max_bytes", "window", "window_bytes", "waiting_bytes"])
@pytest.mark.parametrize("limit", [0, None, "5", 1.5, True])
def test_limits_are_whole_numbers_above_zero(name, limit):
    with pytest.raises(ConfigError, match=f"{name} must be a whole number, at least 1"):
        ProducerSettings(**{name: limit})


@pytest.mark.parametrize("name", ["retries", "compress_over_bytes"])
@pytest.mark.parametrize("count", [-1, None, "5", 1.5, True])
def test_retries_and_what_is_left_uncompressed_may_be_zero(name, count):
    assert getattr(ProducerSettings(**{name: 0}), name) == 0  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=f"{name} must be a whole number, at least 0"):
        ProducerSettings(**{name: count})


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), "3", True, None])
def test_a_time_limit_is_seconds_above_zero(timeout_s):
    with pytest.raises(ConfigError, match="give seconds above 0"):
        ProducerSettings(timeout_s=timeout_s)


@pytest.mark.parametrize("name", ["idempotent", "retry_not_stored", "avoid_slow_brokers"])
@pytest.mark.parametrize("flag", ["no", None, 0])
def test_a_flag_is_true_or_false(name, flag):
    with pytest.raises(ConfigError, match=f"{name}={flag!r}: give True or False"):
        ProducerSettings(**{name: flag})
