"""The reasons why a server does not answer, and what to do about each.

refused      no process listens there
silent       a process takes the connection and does not answer: it hangs, or is stopped
ended        a process takes the connection and ends it: it has as many connections as it may have
unreachable  the address is wrong, or a firewall drops what comes
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Final, NamedTuple

from sparrowmq.errors import NetworkError

_CONNECT_S: Final = 2.0
_SILENT_S: Final = 1.0  # a server that is full ends a connection sooner; one that runs waits for a request
# Networks of containers by Docker and its kind, which no other machine reaches.
_OF_CONTAINERS: Final = tuple(map(ipaddress.ip_network, ("172.16.0.0/12", "10.88.0.0/16", "10.42.0.0/15")))
_HANGING: Final = (
    "it takes connections, but the process hangs. On its machine `ss -ltnp sport = :{port}` shows its PID, and "
    "`ps -o stat,wchan,args PID` its state. T is stopped: `kill -CONT PID`; D waits for a disk: `dmesg`. Otherwise, or "
    "if that does not help, `kill -KILL PID` and start it again: messages on disk stay"
)
_FULL: Final = (
    "it takes connections and ends them at once: as many are open as may be, or a quota limits those of this address. "
    "Its log says which. `ss -tnp dst {address}`, on the machines of clients, shows which processes have many. Stop "
    "some of them, or start the server with a higher `ulimit -n` (LimitNOFILE of systemd)"
)


class Remedy(NamedTuple):
    """Advice about a server that did not answer.

    Attributes:
        runs: whether a process takes connections there.
        is_hanging: whether this process hangs.
    """

    text: str
    runs: bool
    is_hanging: bool


async def remedy(address: str, error: NetworkError) -> Remedy:
    """Find out what to do about a server that did not answer."""
    ends = await _ends_connections(address)
    if ends is None:
        return Remedy(f"{way_to(address)} ({error})", runs=False, is_hanging=False)
    if ends:
        return Remedy(_FULL.format(address=address), runs=True, is_hanging=False)
    return Remedy(_HANGING.format(port=address.rpartition(":")[2]), runs=True, is_hanging=True)


def way_to(address: str) -> str:
    """Return what may keep clients from an address; Java's clients say "connect to <address> failed"."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return f"see that {host} can be resolved and reached from here, or set brokerIP1 to an address that can"
    if ip.is_loopback:
        return "see that it runs; a broker at 127.0.0.1 can be used on its own machine only: set its brokerIP1"
    if any(ip in network for network in _OF_CONTAINERS if ip.version == network.version):
        return (
            f"{host} looks like the address inside a container or virtual machine, which only that machine reaches: "
            "set brokerIP1 to the address of the host, and publish the port under the same number"
        )
    return "see that it runs and that no firewall keeps listenPort from you; set brokerIP1 if the address is wrong"


async def _ends_connections(address: str) -> bool | None:
    """Return whether a server ends a new connection before a request comes; None if it takes none."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except OSError:  # a TimeoutError is one
        return None
    try:
        async with asyncio.timeout(_SILENT_S):
            return not await reader.read(1)
    except TimeoutError:
        return False
    except OSError:  # as a reset
        return True
    finally:
        writer.close()
