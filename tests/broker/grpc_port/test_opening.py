"""Opening the gRPC port of a broker."""

import socket

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.grpc import packages
from sparrowmq.testing import Cluster


async def test_port_of_the_settings_is_opened(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    async with Cluster(tmp_path, grpc_port=port) as cluster:
        assert cluster.brokers[0].grpc_address == f"127.0.0.1:{port}"


async def test_port_that_is_taken_stops_the_start(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="grpcServerPort"):
        async with Cluster(tmp_path, grpc_port=taken.getsockname()[1]):
            pass


async def test_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "PACKAGES", {"nowhere_at_all": "protobuf"})
    with pytest.raises(ConfigError, match="grpcServerPort needs the packages protobuf: pip install"):
        async with Cluster(tmp_path, grpc_port=0):
            pass
