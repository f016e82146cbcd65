"""The benchmark of gRPC servers."""

import pytest

from bench import http2


@pytest.mark.parametrize("name", http2.SERVERS)
def test_a_server_is_measured_by_calls_that_are_all_answered(monkeypatch, name):
    monkeypatch.setattr(http2, "WARM_UP", 20)
    figures = http2.measure(name, 8, 200)
    assert figures["cpu_us"] > 0 and figures["rate"] > 0 and figures["p99_ms"] > 0
