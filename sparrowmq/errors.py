"""Every error that SparrowMQ raises on purpose, as one tree. `docs/use/errors.md` draws it and explains each error.

Each message says what happened and what to do next. `ProtocolError` splits by who is at fault, so that a
server closes the connection of a faulty peer and a client reports a faulty caller without looking at texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from sparrowmq.core.safe_text import shown

# Codes after which the same send may succeed on another broker (Java client 4.9.8,
# DefaultMQProducer.retryResponseCodes).
RETRIABLE_CODES = frozenset({1, 2, 14, 16, 17, 204, 205, 1500})

# Our slaves say so when they refuse what only a master may do; it is in no other remark.
A_SLAVE = "this broker is a slave"
_SLAVES_CODES = frozenset({11, 14})
OF_A_SLAVE = f"{A_SLAVE}, so putMessage is forbidden"

# Characters of a peer's remark in the text of an error; Java's name a class and a line, and then say why.
MAX_REMARK_CHARACTERS = 1000


class SparrowError(Exception):
    """The root: catch it to catch everything that this package raises on purpose."""


class ConfigError(SparrowError):
    """A setting, an option or a command line is wrong."""


class InvalidName(SparrowError, ValueError):
    """A topic or group name breaks the naming rules."""


class InvalidFilter(SparrowError, ValueError):
    """An SQL92 expression cannot be understood; `line` and `column` count from 1."""

    def __init__(self, what: str, line: int, column: int) -> None:
        super().__init__(what, line, column)
        self.line = line
        self.column = column

    def __str__(self) -> str:
        return str(self.args[0])


class InvalidMessage(SparrowError, ValueError):
    """A message cannot be sent as it is."""


class MessageTooLarge(InvalidMessage):
    """The body is larger than the configured maximum."""


class InvalidSchema(SparrowError, ValueError):
    """An Avro or Protobuf schema cannot be used, or the registry does not have it."""


class InvalidBody(SparrowError, ValueError):
    """A body is no value of its Avro or Protobuf schema."""


class ProtocolError(SparrowError):
    """Bytes, or a request to make bytes, do not follow the remoting protocol."""


class LocalProtocolError(ProtocolError):
    """Our own caller asks for something that the protocol cannot carry."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something malformed."""


class RemoteError(SparrowError):
    """The peer answered with a response code (`protocol.codes.ResponseCode`) and a remark.

    It is retriable if the same request may succeed on another broker. `is_slaves`: a slave of ours refused the request.
    It has done nothing, and its master is elsewhere.
    """

    def __init__(self, code: int, remark: str | None = None) -> None:
        super().__init__(code, remark)
        self.code = code
        self.remark = remark or ""

    @property
    def retriable(self) -> bool:
        return self.code in RETRIABLE_CODES

    @property
    def is_slaves(self) -> bool:
        return self.code in _SLAVES_CODES and A_SLAVE in self.remark

    def __str__(self) -> str:
        return f"the peer answered with code {self.code}: {shown(self.remark, MAX_REMARK_CHARACTERS) or 'no remark'}"


# How every broker of RocketMQ 4.x begins what it says to whom it denies something; clients show it.
ACCESS_EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "


class DenialKind(Enum):
    """The reasons of denials that a broker counts."""

    UNKNOWN_ACCOUNT = "unknown_account"
    WRONG_SIGNATURE = "wrong_signature"
    NO_PERMISSION = "no_permission"
    NEEDS_ADMIN = "needs_admin"


class AccessDenied(RemoteError):
    """Access control refuses the request. A retry, here or at another broker, gets the same answer.

    The code is 1; brokers of 5.3 and later have others. `kind` is the reason as the broker counts it.
    """

    kind = DenialKind.NO_PERMISSION

    def __init__(self, reason: str, code: int = 1) -> None:
        begin = ACCESS_EXCEPTION if code == 1 else ""
        super().__init__(code, begin + reason.removeprefix(ACCESS_EXCEPTION))
        self.args = (reason,) if code == 1 else (reason, code)

    def of_kind(self, kind: DenialKind) -> AccessDenied:
        self.kind = kind
        return self

    @property
    def retriable(self) -> bool:
        return False

    def __str__(self) -> str:
        reason = self.remark.removeprefix(ACCESS_EXCEPTION)
        return (
            f"the broker's access control does not allow it: {shown(reason, MAX_REMARK_CHARACTERS)}; check the access "
            "key and the secret key, and what the account may do (plain_acl.yml of the broker, or getAcl of 5.3 and "
            "later)"
        )


class WrongServer(RemoteError):
    """A broker was asked as a name server, or a name server as a broker. `wanted` is "name server" or "broker"."""

    def __init__(self, address: str, wanted: str, remark: str | None = None) -> None:
        super().__init__(3, remark)
        self.args = (address, wanted, remark)
        self.address = address
        self.wanted = wanted

    def __str__(self) -> str:
        if self.wanted == "broker":
            return (
                f"{self.address} is a name server, not a broker; give the broker's name, or its address, whose port is "
                "usually 10911"
            )
        return (
            f"{self.address} is a broker, not a name server; give the name server's address, whose port is usually 9876"
        )


class NetworkError(SparrowError):
    """The peer could not be asked, or did not answer."""


class TlsFailed(NetworkError):
    """The two sides do not agree on an encrypted connection. Other errors have it as their reason."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(what, advice)
        self.what = what
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.what}; {self.advice}"


class BrokerUnreachable(NetworkError):
    """No connection to an address could be made."""

    def __init__(self, address: str, reason: object) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason

    def __str__(self) -> str:
        if isinstance(self.reason, TlsFailed):
            return f"cannot connect to {self.address} ({self.reason.what}); {self.reason.advice}"
        return (
            f"cannot connect to {self.address} ({self.reason}); check that it runs, that the port is open, and "
            "that the address which the broker advertises (brokerIP1) can be reached from here"
        )


class NameServerUnreachable(NetworkError):
    """None of the name servers could be asked."""

    def __init__(self, addresses: str, reason: object) -> None:
        super().__init__(addresses, reason)
        self.addresses = addresses
        self.reason = reason

    def __str__(self) -> str:
        why = self.reason.reason if isinstance(self.reason, ConnectionClosed) else self.reason
        if isinstance(why, TlsFailed):
            return f"cannot ask name server {self.addresses} ({why.what}); {why.advice}"
        if isinstance(self.reason, ConnectionClosed):  # a server with client certificates does not say more
            return (
                f"cannot ask name server {self.addresses} ({self.reason}); if it takes encrypted connections only, "
                "connect by TLS (tls=True, or --tls), and perhaps with a certificate"
            )
        return (
            f"cannot ask name server {self.addresses} ({self.reason}); start one with `sparrowmq dev` or `mqnamesrv`, "
            "or check that this address and port are right and can be reached from here"
        )


class ConnectionClosed(NetworkError):
    """The connection ended before the answer came."""

    def __init__(self, address: str, reason: object = None) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason

    def __str__(self) -> str:
        if isinstance(self.reason, TlsFailed):
            return f"{self.address} closed the connection ({self.reason.what}); {self.reason.advice}"
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


class EtcdFailed(NetworkError):
    """Etcd, which keeps who is the master, could not be asked; what was to be changed may have been, or not."""


class NoRoute(SparrowError):
    """No name server knows a broker for the topic; or, without a name server, no queue of the topic takes messages."""

    def __init__(self, topic: str, namesrv: str | None) -> None:
        super().__init__(topic, namesrv)
        self.topic = topic

    def __str__(self) -> str:
        if self.args[1] is None:
            return (
                f"no route for topic {self.topic!r}: none of its queues takes messages; see `sparrowmq doctor` for "
                f"full disks, and else the permission in `sparrowmq topic show {self.topic}` and brokerPermission of "
                "its brokers"
            )
        return (
            f"no route for topic {self.topic!r} at name server {self.args[1]}; create the topic, or check that a "
            "broker which allows it (autoCreateTopicEnable) is registered there"
        )


class NoBroker(SparrowError):
    """No broker of this name, no cluster of this name, or no broker at all is registered at the name servers.

    `what` is "broker" or "cluster", None for any broker; `there` are the names that are registered.
    """

    def __init__(self, namesrv: str, what: str | None = None, name: str = "", there: Sequence[str] = ()) -> None:
        super().__init__(namesrv, what, name, there)
        self.name = name

    def __str__(self) -> str:
        namesrv, what, name, there = self.args
        if not there:
            return (
                f"no broker is registered at name server {namesrv}; start one with `mqbroker -n {namesrv}`. If one "
                "runs, its log says why it is not registered"
            )
        return (
            f"there is no {what} {name!r} at name server {namesrv}; there is {', '.join(there)}. Correct the name, or "
            f"start the {what}"
        )


class NoGroup(SparrowError):
    """No broker that was asked knows the consumer group."""

    def __init__(self, group: str) -> None:
        super().__init__(group)
        self.group = group

    def __str__(self) -> str:
        return (
            f"there is no consumer group {self.group!r}; check its name, or create it: its first consumer does so too, "
            "where brokers allow it (autoCreateSubscriptionGroup)"
        )


class NoMessage(SparrowError):
    """No broker that was asked has a message of this id."""

    def __init__(self, msg_id: str, where: str) -> None:
        super().__init__(msg_id, where)
        self.msg_id = msg_id

    def __str__(self) -> str:
        return f"there is no message {shown(self.msg_id)} {self.args[1]}; it may have expired there"


class AlreadyThere(SparrowError):
    """The object to create exists already."""


class ChangeFailed(SparrowError):
    """A change was not made everywhere; making it again does no harm where it was.

    `done` are the brokers that made it; `failures` has the errors of the others, by name.
    """

    def __init__(self, what: str, done: Sequence[str], failures: Mapping[str, SparrowError]) -> None:
        super().__init__(what, done, failures)
        self.what = what
        self.done = list(done)
        self.failures = dict(failures)

    def __str__(self) -> str:
        failed = "; ".join(f"{name}: {error}" for name, error in self.failures.items())
        done = f"it was done at {', '.join(self.done)}" if self.done else "no broker has confirmed it"
        return f"{self.what} failed at {failed}; {done}"


class NotElected(SparrowError):
    """A member that an operator wants to lead is not chosen, or does not lead in time; the text says why."""


class NotBack(SparrowError):
    """A broker that was restarted, or another one of its cluster, is not well in time."""

    def __init__(self, broker: str, limit_s: float, problem: str) -> None:
        super().__init__(broker, limit_s, problem)
        self.broker = broker
        self.limit_s = limit_s
        self.problem = problem

    def __str__(self) -> str:
        return (
            f"not all is well after {self.limit_s:g} s ({self.problem}); look at the log of this broker, and continue "
            "when it is well. If it was drained, it stays so until then"
        )


HIDE_ADVICE = "change it again when they are, or give hide_unread=True (--yes), which hides them from consumers"


class StillUnread(SparrowError):
    """A topic keeps its read queues, because some of them have messages that were not consumed.

    `groups` has the number of messages by group; "" is for queues that no group has consumed. It is empty if
    producers still sent messages. `remedy` ends the text, and says what to do.
    """

    def __init__(self, topic: str, read_queues: int, groups: Mapping[str, int], remedy: str = HIDE_ADVICE) -> None:
        super().__init__(topic, read_queues, groups, remedy)
        self.topic = topic
        self.read_queues = read_queues
        self.groups = dict(groups)
        self.remedy = remedy

    def __str__(self) -> str:
        counts = ", ".join(f"{group or 'without a group'} {count}" for group, count in self.groups.items())
        still = f"still have messages that were not consumed ({counts})" if counts else "still got some a moment ago"
        return (
            f"topic {self.topic} gets no more messages in queues from {self.read_queues} on, but these {still}; "
            f"{self.remedy}"
        )


class NotEmpty(SparrowError):
    """A broker that was to be emptied still has messages that are needed."""


class SendFailed(SparrowError):
    """Every attempt to send a message failed.

    With `is_in_doubt` the message may be stored all the same, as an answer got lost. `cause` is the error of the last
    attempt. Its text is part of this error's text, so it is not chained, and no traceback prints it a second time.
    """

    def __init__(self, text: str, is_in_doubt: bool = False, cause: BaseException | None = None) -> None:
        super().__init__(text)
        self.is_in_doubt = is_in_doubt
        self.cause = cause


class SendManyFailed(SendFailed):
    """Some of many messages failed: `results` has the SendResult or the error of each, in their order."""

    def __init__(self, results: Sequence[Any]) -> None:
        failures = [result for result in results if isinstance(result, BaseException)]
        super().__init__(
            f"{len(failures)} of {len(results)} messages failed, the first one so: {failures[0]}. "
            "`results` of this error has what became of each",
            any(getattr(failure, "is_in_doubt", False) for failure in failures),
            failures[0],
        )
        self.results = list(results)

    def __reduce__(self) -> tuple[type[SendManyFailed], tuple[list[Any]]]:
        return type(self), (self.results,)


class TransactionEnded(SparrowError):
    """A transaction was used before it began or after it ended, or ended in another way than before."""


class ClientClosed(SparrowError):
    """The client, producer or consumer was closed."""


class BeingHandled(SparrowError):
    """Another program handles the same message, and did not end in time; the message comes again later."""

    def __init__(self, key: str, waited_s: float) -> None:
        super().__init__(key, waited_s)
        self.key = key

    def __str__(self) -> str:
        return (
            f"another program has been handling the message of {self.key} for {self.args[1]:g} s; the message comes "
            "again later. Look for a handler that does not end"
        )


class StoreError(SparrowError):
    """The message store cannot do what was asked."""


class StoreLocked(StoreError):
    """Another process has the store open: its id is `process`, 0 if it is not known."""

    def __init__(self, path: object, process: int = 0) -> None:
        super().__init__(path, process)
        self.path = path
        self.process = process

    def __str__(self) -> str:
        who = f"another broker (process {self.process})" if self.process else "another broker"
        return f"the store {self.path} is in use by {who}; stop that one or choose another storePathRootDir"


class BadStore(StoreError):
    """A folder or file is not what a store holds."""


class CorruptRecord(StoreError):
    """Bytes on disk are damaged at an offset of the log; `expected` says in words what should have been there."""

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
    """A message is stored, but it took too long to make it as safe as was promised; `code` says so to clients."""

    def __init__(self, code: int, what: str, timeout_s: float) -> None:
        super().__init__(code, what, timeout_s)
        self.code = code
        self.what = what
        self.timeout_s = timeout_s

    def __str__(self) -> str:
        return f"the message is stored, but was not {self.what} within {self.timeout_s:g} s; a crash now could lose it"


class NoSlaveNear(NotSafeInTime):
    """A message is stored at a master that waits for a slave, and no slave is near enough to be waited for."""

    def __str__(self) -> str:
        return f"the message is stored, but {self.what}; if this machine is lost now, so is the message"


class LogsDiffer(StoreError):
    """A slave's log is not the beginning of its master's: nothing is taken from it, and nothing thrown away."""


class OutOfResources(DiskFull):
    """The process or the machine has no file descriptor or no memory left; it passes, as a full disk does."""


class StoreFailed(StoreError):
    """A write or sync failed: nothing more is acknowledged until the store was opened again."""
