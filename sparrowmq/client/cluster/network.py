"""What every part of one client shares: who it is, where brokers are, and how to reach them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sparrowmq.client.cluster.brokers import Brokers
from sparrowmq.client.cluster.routes import Routes
from sparrowmq.clock import Clock
from sparrowmq.remoting.pool import split_address


@dataclass(frozen=True, slots=True)
class Network:
    """One client's view of the cluster.

    Attributes:
        client_id: by which brokers and other members of a group know this client.
        ip: this machine's address as seen from the name server.
        namesrv: the name servers, separated by ";".
        instance: tells programs on one machine apart where that must outlast a restart: in the files of
            broadcast offsets.
    """

    client_id: str
    ip: str
    instance: str
    namesrv: str
    routes: Routes
    brokers: Brokers
    clock: Clock


def local_ip(name_servers: Sequence[str]) -> str:
    """The address by which this machine talks to a name server, or to the world if that is given by name."""
    for address in (*name_servers, "192.0.2.1:9"):
        host, port = split_address(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            socket.inet_pton(family, host)
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((host, port))  # UDP: nothing is sent.
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"


def unique_client_id(ip: str) -> str:
    """As Java makes it: address, process, and a number that tells apart clients of one process."""
    return f"{ip}@{os.getpid()}#{time.monotonic_ns()}"
