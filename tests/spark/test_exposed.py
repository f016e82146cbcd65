"""sparrowmq.spark.exposed: figures of a driver for Prometheus."""

import urllib.request

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.spark.exposed import exposed


def read(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def test_figures_are_looked_up_when_somebody_asks():
    figures = iter([1, 2])
    with exposed("127.0.0.1:0", lambda page: page.gauge("rows", "so many", next(figures))) as address:
        assert '\nrows{node_type="spark"} 1.0\n' in read(f"http://{address}/metrics")
        assert '\nrows{node_type="spark"} 2.0\n' in read(f"http://{address}/metrics")
        assert read(f"http://{address}/healthz") == "ok\n"
    with pytest.raises(OSError):  # refused, or cut off
        read(f"http://{address}/metrics")


def test_without_an_address_nobody_listens():
    with exposed(None, lambda page: None) as address:
        assert address is None


@pytest.mark.parametrize("address", ["", "5558", ":5558", "localhost:", "localhost:http", "localhost:70000"])
def test_what_is_no_address_is_told(address):
    with pytest.raises(ConfigError, match="write host:port"), exposed(address, lambda page: None):
        pass


def test_a_port_that_is_taken_is_told():
    with exposed("127.0.0.1:0", lambda page: None) as address:
        assert address is not None
        with pytest.raises(ConfigError, match="cannot listen"), exposed(address, lambda page: None):
            pass
