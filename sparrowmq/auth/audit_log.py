"""The audit log: who asked for what, from where, with which result. One JSON object a line.

    {"time": "2026-11-21T10:41:18.003Z", "event": "admin", "account": "operator", "address": "10.0.0.5:50112",
     "code": 17, "request": "UPDATE_AND_CREATE_TOPIC", "object": {"topic": "orders"}, "result": 0}
    {"time": ..., "event": "denied", ..., "reason": "no_permission", "remark": "No default permission for topic:orders"}
    {"time": ..., "event": "left_out", "address": "10.0.0.66", "count": 8120}

    audit.log           every request for administrators that was allowed to try
    audit-denied.log    every denial

Strangers can cause denials without end. So denials have a file of their own, and push no administrator's request out.
After MAX_DENIALS_A_MINUTE of one address its denials are only counted; denied requests for administrators have a count
of their own. The same holds for the lines in the broker's log. A crash loses the lines of the last second.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sparrowmq.auth.addresses import PORT_BYTES
from sparrowmq.auth.permissions import ADMINISTRATORS, Peer
from sparrowmq.auth.rotated_file import RotatedFile, denials_file
from sparrowmq.core.safe_text import shown
from sparrowmq.core.stats import RecentEvents
from sparrowmq.errors import ACCESS_EXCEPTION, AccessDenied, DenialKind, RemoteProtocolError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.hosts import limit_key
from sparrowmq.protocol.requests.request_table import BY_CODE, ROWS, Access
from sparrowmq.protocol.requests.settings_text import of_request
from sparrowmq.protocol.signature import ACCESS_KEY
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.header import Request

log = logging.getLogger(__name__)

WRITE_PERIOD_S: Final = 1.0
MAX_DENIALS_A_MINUTE: Final = 100  # denials of one address
MAX_LOGGED_DENIALS: Final = 10  # of them in the broker's log
REPORTED_DENIALS: Final = 5  # denials within some seconds are worth a report
_MAX_ADDRESSES: Final = 10_000
_LIMIT_PERIOD_S: Final = 60.0
_MAX_TEXT_CHARACTERS: Final = 200

# Fields that are secret, long, or say nothing about the object.
_OMITTED_FIELDS: Final = frozenset({"secret_key", "properties", "subscription", "born_timestamp", "sys_flag", "flag"})
_SETTINGS_CODES: Final = frozenset({RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG})
_SERVER_CODES: Final = frozenset(int(row.code) for row in ROWS if row.access in ADMINISTRATORS)
# Brokers send the others of the cluster all the time: registrations, and slaves' copies of the state of a master.
_ADMIN_CODES: Final = frozenset(int(row.code) for row in ROWS if row.access is Access.ADMIN)
_ADMIN_EVENT: Final = "admin"
_DENIED_EVENT: Final = "denied"
OnResult = Callable[[int, str | None], None]


class Audit:
    """Notes requests for administrators and denials. Without a `path` it writes no file, but counts denials, and logs
    them. `codes` are the requests of which every answer is noted. `denials` counts by kind. `repeated_denials` has the
    latest one, if there were many within some seconds."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self.codes = _ADMIN_CODES
        self.denials: Counter[str] = Counter({kind.value: 0 for kind in DenialKind})
        self.repeated_denials = RecentEvents(clock, REPORTED_DENIALS)
        self._files: dict[str, RotatedFile] = {}
        if path is not None:
            self._files = {_ADMIN_EVENT: RotatedFile(path), _DENIED_EVENT: RotatedFile(denials_file(path))}
        self._clock = clock
        # Of requests for administrators, and of others.
        self._limits = {True: _DenialLimit(clock), False: _DenialLimit(clock)}

    @property
    def lost_lines(self) -> int:
        return sum(file.lost_lines for file in self._files.values())

    @property
    def problem(self) -> str:
        return next((file.problem for file in self._files.values() if file.problem), "")

    @property
    def is_due(self) -> bool:
        """Whether lines wait for `write`, or a file could not be written."""
        return any(file.is_due for file in self._files.values())

    def begin(self, peer: Peer, command: Command, header: Request[Any]) -> OnResult:
        """Note a request for administrators that is handled now. Call the result with the answer's code and remark."""
        line = self._make_line(_ADMIN_EVENT, peer, command, header)

        def on_result(code: int, remark: str | None) -> None:
            result = {"result": code} | ({"remark": shown(remark)} if remark and code else {})
            self._add_line(_ADMIN_EVENT, line | result)

        return on_result

    def denied(self, peer: Peer, command: Command, header: Request[Any] | None, error: AccessDenied) -> None:
        has_key = error.kind is not DenialKind.UNKNOWN_ACCOUNT or command.ext_fields().get(ACCESS_KEY) is not None
        name, is_trusted = _request_name(command.code), command.code in _SERVER_CODES
        if self._count_denial(name, peer.address, peer.host, error, is_trusted, has_key):
            self._add_line(_DENIED_EVENT, self._make_line(_DENIED_EVENT, peer, command, header) | _denial_fields(error))

    def note_denied_call(self, method: str, address: str, host: bytes, error: AccessDenied) -> None:
        """Count a call that the gRPC port denies because of its signature, and note it."""
        if self._count_denial(method, address, host, error):
            line = {"time": self._time(), "event": _DENIED_EVENT, "address": address, "request": method}
            self._add_line(_DENIED_EVENT, line | _denial_fields(error))

    def _count_denial(
        self,
        request: str,
        address: str,
        host: bytes,
        error: AccessDenied,
        is_trusted: bool = False,
        has_key: bool = True,
    ) -> bool:
        """Count a denial, and log it. Returns whether it gets a line of the file."""
        self.denials[error.kind.value] += 1
        remark = _remark(error)
        sender = f"{request} of {address}" + ("" if has_key else ", which sends no access key")
        self.repeated_denials.note(f"requests are denied again and again, the last one is {sender}: {remark}")
        number, omitted_count = self._limits[is_trusted].count(host[:-PORT_BYTES])
        if number > MAX_DENIALS_A_MINUTE:
            return False
        if omitted_count:
            place = {"address": address.rpartition(":")[0], "count": omitted_count}
            self._add_line(_DENIED_EVENT, {"time": self._time(), "event": "left_out"} | place)
        if number <= MAX_LOGGED_DENIALS:
            more = f" ({omitted_count} more were not noted)" if omitted_count else ""
            ending = "; more of this address in the next minute are not logged" if number == MAX_LOGGED_DENIALS else ""
            log.warning("request %s of %s is denied: %s%s%s", request, address, remark, more, ending)
        return True

    def write(self) -> None:
        """Append the waiting lines to their files. Blocks: call it in a thread. Never raises."""
        for file in self._files.values():
            if file.is_due:
                file.write()

    def _make_line(self, event: str, peer: Peer, command: Command, header: Request[Any] | None) -> dict[str, Any]:
        line: dict[str, Any] = {"time": self._time(), "event": event}
        if peer.principal is not None:
            line["account"] = peer.principal.access_key
        elif event == _DENIED_EVENT:
            claimed_key = command.ext_fields().get(ACCESS_KEY)
            line |= {"claimed": shown(claimed_key)} if claimed_key is not None else {}
        line |= {"address": peer.address, "code": command.code, "request": _request_name(command.code)}
        return line | {"object": {} if header is None else _object_fields(header, command)}

    def _time(self) -> str:
        moment = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def _add_line(self, event: str, line: dict[str, Any]) -> None:
        if event in self._files:
            self._files[event].add(json.dumps(line))


class _DenialLimit:
    """Counts what an address causes in a minute. Of too many addresses it forgets those counted longest ago."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[bytes, tuple[float, int]] = {}  # the minute's end, and the number in it

    def count(self, address: bytes) -> tuple[int, int]:
        """Count one more. Returns its number in the minute, and how many were left out in the one before."""
        key = limit_key(address)
        now_s = self._clock.monotonic()
        end_s, number = self._counts.pop(key, (0.0, 0))
        omitted_count = 0
        if now_s >= end_s:
            omitted_count, end_s, number = max(0, number - MAX_DENIALS_A_MINUTE), now_s + _LIMIT_PERIOD_S, 0
        if len(self._counts) >= _MAX_ADDRESSES:
            del self._counts[next(iter(self._counts))]
        self._counts[key] = end_s, number + 1
        return number + 1, omitted_count


def _denial_fields(error: AccessDenied) -> dict[str, Any]:
    return {"result": error.code, "reason": error.kind.value, "remark": _remark(error)}


def _remark(error: AccessDenied) -> str:
    return shown(error.remark.removeprefix(ACCESS_EXCEPTION))


def _request_name(code: int) -> str:
    row = BY_CODE.get(code)
    return row.name if row is not None else str(code)


def _object_fields(header: Request[Any], command: Command) -> dict[str, str]:
    """The fields of a request that say what it is about. Values are texts without control characters."""
    values = {name: getattr(header, name) for name in header.__struct_fields__ if name not in _OMITTED_FIELDS}
    fields = {name: shown(value, _MAX_TEXT_CHARACTERS) for name, value in values.items() if value not in (None, "")}
    if command.code in _SETTINGS_CODES:
        try:
            settings = " ".join(of_request(command.body))
        except RemoteProtocolError:
            settings = "(unreadable)"
        fields["settings"] = shown(settings)
    return fields
