import pytest

from sparrowmq.client.sending.settings import ProducerSettings
from sparrowmq.errors import ConfigError


@pytest.mark.covers("S-PROD-03", "S-PROD-04", "S-PROD-10", "S-PROD-11", "S-PROD-12")
def test_what_java_takes_is_taken():
    usual = ProducerSettings()
    assert (usual.retries, usual.timeout_s, usual.retry_not_stored) == (2, 3.0, False)
    assert (usual.compress_over_bytes, usual.max_bytes) == (4096, 4 * 1024 * 1024)


@pytest.mark.parametrize("name", ["max_bytes", "window", "window_bytes", "waiting_bytes"])
def test_limits_are_above_zero(name):
    with pytest.raises(ConfigError, match=f"{name} must be above 0"):
        ProducerSettings(**{name: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), "3", True, None])
def test_a_time_limit_is_seconds_above_zero(timeout_s):
    with pytest.raises(ConfigError, match="give seconds above 0"):
        ProducerSettings(timeout_s=timeout_s)


def test_retries_are_not_negative():
    assert ProducerSettings(retries=0).retries == 0
    with pytest.raises(ConfigError, match="0 sends once"):
        ProducerSettings(retries=-1)
