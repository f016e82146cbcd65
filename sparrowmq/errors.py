"""Every error that SparrowMQ raises on purpose, as one tree.

    SparrowError
    ├── ConfigError               a setting, an option or a command line is wrong
    ├── InvalidName               a topic or group name breaks the naming rules
    ├── InvalidMessage            a message cannot be sent as it is
    │   └── MessageTooLarge
    ├── ProtocolError             bytes do not follow the remoting protocol
    │   ├── LocalProtocolError    our own caller asks for something that the protocol cannot carry
    │   └── RemoteProtocolError   the peer sent something malformed
    ├── RemoteError               the peer answered with an error code
    ├── NetworkError              the peer could not be asked, or did not answer
    │   ├── BrokerUnreachable
    │   ├── ConnectionClosed
    │   └── RequestTimeout
    ├── NoRoute                   no name server knows a broker for the topic
    ├── SendFailed                every attempt to send failed; the last cause is chained
    ├── ClientClosed              the client was closed while, or before, it was asked
    └── StoreError                the message store
        ├── StoreLocked           another process has the store open
        ├── BadStore              a folder or file is not what a store holds
        ├── CorruptRecord         bytes on disk are damaged
        ├── DiskFull              no room for the next file
        │   └── OutOfResources    no file descriptor or no memory: it passes, as a full disk does
        ├── NotSafeInTime         a message is stored, but not yet as safe as was promised
        └── StoreFailed           a write or sync failed: the store is read-only from then on

Each message says what happened and what to do next. `ProtocolError` splits by who is at fault, so that a
server closes the connection of a faulty peer and a client reports a faulty caller without looking at texts.
"""

from __future__ import annotations

from sparrowmq.shown import shown

# Codes after which the same send may succeed on another broker (Java client 4.9.8,
# DefaultMQProducer.retryResponseCodes).
RETRIABLE_CODES = frozenset({1, 2, 14, 16, 17, 204, 205, 1500})


# Characters of a peer's remark in the text of an error; Java's name a class and a line, and then say why.
LONGEST_REMARK = 1000


class SparrowError(Exception):
    """The root: catch it to catch everything that this package raises on purpose."""


class ConfigError(SparrowError):
    """A setting, an option or a command line is wrong."""


class InvalidName(SparrowError, ValueError):
    """A topic or group name breaks the naming rules."""


class InvalidMessage(SparrowError, ValueError):
    """A message cannot be sent as it is."""


class MessageTooLarge(InvalidMessage):
    """The body is larger than the configured maximum."""


class ProtocolError(SparrowError):
    """Bytes, or a request to make bytes, do not follow the remoting protocol."""


class LocalProtocolError(ProtocolError):
    """Our own caller asks for something that the protocol cannot carry."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something malformed."""


class RemoteError(SparrowError):
    """The peer answered with an error code.

    Attributes:
        code: the response code, as in `protocol.codes.ResponseCode`.
        remark: the peer's own words.
        retriable: whether the same request may succeed on another broker.
    """

    def __init__(self, code: int, remark: str | None = None) -> None:
        super().__init__(code, remark)
        self.code = code
        self.remark = remark or ""

    @property
    def retriable(self) -> bool:
        return self.code in RETRIABLE_CODES

    def __str__(self) -> str:
        return f"the peer answered with code {self.code}: {shown(self.remark, LONGEST_REMARK) or 'no remark'}"


class NetworkError(SparrowError):
    """The peer could not be asked, or did not answer."""


class BrokerUnreachable(NetworkError):
    """No connection to an address could be made."""

    def __init__(self, address: str, reason: object) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"cannot connect to {self.address} ({self.reason}); check that it runs, that the port is open, and "
            "that the address which the broker advertises (brokerIP1) can be reached from here"
        )


class ConnectionClosed(NetworkError):
    """The connection ended before the answer came."""

    def __init__(self, address: str, reason: object = None) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason

    def __str__(self) -> str:
        because = f" ({self.reason})" if self.reason else ""
        return f"the connection to {self.address} was closed{because}; whether the request was carried out is unknown"


class RequestTimeout(NetworkError):
    """No answer came in time; whether the request was carried out is unknown."""

    def __init__(self, address: str, what: str, timeout_s: float) -> None:
        super().__init__(address, what, timeout_s)
        self.address = address
        self.what = what
        self.timeout_s = timeout_s

    def __str__(self) -> str:
        return (
            f"{self.address} did not answer {self.what} within {self.timeout_s:g} s; "
            "whether it was carried out is unknown"
        )


class NoRoute(SparrowError):
    """No name server knows a broker for the topic."""

    def __init__(self, topic: str, namesrv: str) -> None:
        super().__init__(topic, namesrv)
        self.topic = topic

    def __str__(self) -> str:
        return (
            f"no route for topic {self.topic!r} at name server {self.args[1]}; create the topic, or check that a "
            "broker which allows it (autoCreateTopicEnable) is registered there"
        )


class SendFailed(SparrowError):
    """Every attempt to send a message failed; the last cause is chained."""


class ClientClosed(SparrowError):
    """The client, producer or consumer was closed."""


class StoreError(SparrowError):
    """The message store cannot do what was asked."""


class StoreLocked(StoreError):
    """Another process has the store open."""

    def __init__(self, path: object) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"the store {self.path} is in use by another broker; stop that one or choose another storePathRootDir"


class BadStore(StoreError):
    """A folder or file is not what a store holds."""


class CorruptRecord(StoreError):
    """Bytes on disk are damaged.

    Attributes:
        file: which file.
        offset: where in the log, in bytes.
        expected: what should have been there, in words.
    """

    def __init__(self, file: object, offset: int, expected: str) -> None:
        super().__init__(file, offset, expected)
        self.file = file
        self.offset = offset
        self.expected = expected

    def __str__(self) -> str:
        return f"{self.file} is damaged at offset {self.offset}: {self.expected}"


class DiskFull(StoreError):
    """There is no room for the next file; reads go on, writes are refused until space is freed."""


class NotSafeInTime(StoreError):
    """A message is stored, but it took too long to make it as safe as was promised.

    Attributes:
        code: the response code that says so, as in `protocol.codes.ResponseCode`.
    """

    def __init__(self, code: int, what: str, timeout_s: float) -> None:
        super().__init__(code, what, timeout_s)
        self.code = code
        self.what = what
        self.timeout_s = timeout_s

    def __str__(self) -> str:
        return f"the message is stored, but was not {self.what} within {self.timeout_s:g} s; a crash now could lose it"


class OutOfResources(DiskFull):
    """The process or the machine has no file descriptor or no memory left; it passes, as a full disk does."""


class StoreFailed(StoreError):
    """A write or sync failed: nothing more is acknowledged until the store was opened again."""
