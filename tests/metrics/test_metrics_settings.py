"""Where Prometheus may come."""

import socket

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.metrics.metrics_settings import Exporter, MetricsSettings, metrics_listener
from sparrowmq.settings.settings import build

ON = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}


def settings(**given: str) -> MetricsSettings:
    return build(MetricsSettings, given, "a test")[0]


def test_there_is_no_port_unless_asked_for():
    assert settings().metrics is Exporter.DISABLE
    assert metrics_listener(settings(), "127.0.0.1", insecure=False) is None


def test_it_listens_where_the_server_does_or_where_it_is_told():
    for given, host in (({}, "127.0.0.2"), ({"metricsPromExporterHost": "127.0.0.1"}, "127.0.0.1")):
        door = metrics_listener(settings(**ON, **given), "127.0.0.2", insecure=False)
        assert door is not None and door.host == host and door.port > 0
        door.close()


@pytest.mark.parametrize("given", [{}, {"metricsPromExporterHost": "0.0.0.0"}])
def test_a_public_address_is_refused_unless_the_network_is_trusted(given):
    with pytest.raises(ConfigError, match=r"metricsPromExporterHost=127\.0\.0\.1, or insecure=true"):
        metrics_listener(settings(**ON, **given), "0.0.0.0", insecure=False)
    door = metrics_listener(settings(**ON, **given), "0.0.0.0", insecure=True)
    assert door is not None
    door.close()


def test_a_port_that_is_taken_is_told_with_its_setting():
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = settings(metricsExporterType="PROM", metricsPromExporterPort=str(other.getsockname()[1]))
        with pytest.raises(ConfigError, match="another metricsPromExporterPort"):
            metrics_listener(taken, "127.0.0.1", insecure=False)


def test_labels_of_ones_own_are_pairs():
    assert settings(metricsLabel="zone:a,url:http://x").metrics_labels == (("zone", "a"), ("url", "http://x"))
    assert settings(metricsLabel="zone:a,b:c").as_properties()["metricsLabel"] == "zone:a,b:c"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("metricsLabel", "zone"),
        ("metricsLabel", "a b:c"),
        ("metricsExporterType", "OTLP_GRPC"),
        ("metricsPromExporterPort", "-1"),
        ("metricsPromExporterPort", "65536"),
        ("metricsMaxSeries", "0"),
        ("metricsMaxSeries", ""),
    ],
)
def test_a_wrong_value_is_refused(key, value):
    with pytest.raises(ConfigError, match=key):
        settings(**{key: value})
