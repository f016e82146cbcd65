"""Servers of other kinds for `bench peers`: NATS with JetStream, and Redis with its append-only file."""

from __future__ import annotations

import re
import subprocess

from bench.listening import Listening
from tests.interop.apache import free_ports
from tests.interop.child import scratch
from tests.interop.kits import nats_server, redis_server


class NatsServer(Listening):
    """Streams that ask for it are kept in files. Raises: PeerMissing."""

    def __init__(self) -> None:
        port, home = free_ports(1)[0], scratch("nats")
        self.address = f"127.0.0.1:{port}"
        options = ["--jetstream", "--store_dir", home.name, "--addr", "127.0.0.1", "--port", str(port)]
        super().__init__(home, [str(nats_server()), *options])


class RedisServer(Listening):
    """Appends to a file that is synced every second, and saves nothing else. Raises: PeerMissing."""

    def __init__(self) -> None:
        port, home = free_ports(1)[0], scratch("redis")
        self.address = f"127.0.0.1:{port}"
        lasting = ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
        super().__init__(
            home,
            [str(redis_server()), "--bind", "127.0.0.1", "--port", str(port), "--dir", home.name, *lasting],
        )


def redis_version() -> str:
    """The version of the Redis server. Raises: PeerMissing."""
    said = subprocess.run([redis_server(), "--version"], capture_output=True, text=True).stdout
    found = re.search(r"v=([\d.]+)", said)
    return found[1] if found else "of an unknown version"
