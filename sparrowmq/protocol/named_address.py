"""The address of a broker behind a proxy: `host:port#broker`.

All brokers behind a proxy have the proxy's address. A client makes one connection to it for each broker, and names the
broker in every request on it, in the field `bname`. So all that goes by address in a client holds for a proxy too.
Source: the remoting port of the proxy, Java 5.4.0, demands this field of its clients.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.protocol.wire.connection import Sign

_MARK: Final = "#"
BROKER_FIELD: Final = "bname"


def with_broker(address: str, broker_name: str) -> str:
    """The address of a broker behind the proxy at `address`."""
    return f"{address}{_MARK}{broker_name}"


def split_broker(address: str) -> tuple[str, str]:
    """The address to connect to, and the name of the broker; "" without a proxy."""
    host_and_port, _, broker_name = address.partition(_MARK)
    return host_and_port, broker_name


def naming(broker_name: str, sign: Sign | None) -> Sign | None:
    """Make the function that adds the broker's name to requests, if there is one, and a signature that covers it."""
    if not broker_name:
        return sign
    name = {BROKER_FIELD: broker_name}
    if sign is None:
        return lambda fields, body: name
    return lambda fields, body: name | sign(fields | name, body)
