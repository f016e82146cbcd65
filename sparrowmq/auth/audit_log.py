"""The audit log: who asked for what, from where, with which result. One JSON object a line.

    {"time": "2026-11-21T10:41:18.003Z", "event": "admin", "account": "operator", "address": "10.0.0.5:50112",
     "code": 17, "request": "UPDATE_AND_CREATE_TOPIC", "object": {"topic": "orders"}, "result": 0}
    {"time": ..., "event": "denied", ..., "reason": "no_permission", "remark": "No default permission for topic:orders"}
    {"time": ..., "event": "left_out", "address": "10.0.0.66", "count": 8120}

It has every request for administrators and every denial. An address that is denied all the time would push older lines
out of the files, so its denials are counted after MOST_A_MINUTE of them; denied requests for administrators have a
count of their own. The same holds for the lines in the broker's log.

    request ── a line in memory ── `write`, in a thread, each second ── audit.log ── at 64 MiB: audit.log.1 ... .4

The broker never waits for the file. If the disk is full or slow, lines are dropped and counted. A crash loses the lines
of the last second.
"""

from __future__ import annotations

import json
import logging
from collections import Counter, deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sparrowmq.auth.accounts import PORT_BYTES
from sparrowmq.auth.permissions import ADMINISTRATORS, Caller
from sparrowmq.errors import ACCESS_EXCEPTION, AccessDenied, DenialKind
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.recent import Recent
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.requests.request_table import BY_CODE, ROWS, Access
from sparrowmq.protocol.signature import ACCESS_KEY
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.header import Request
from sparrowmq.safe_text import shown

log = logging.getLogger(__name__)

WRITE_PERIOD_S: Final = 1.0
SIZE_BYTES: Final = 64 << 20
KEPT_FILES: Final = 4  # older ones
MOST_A_MINUTE: Final = 100  # denials of one address
MOST_LOGGED: Final = 10  # of them in the broker's log
AGAIN: Final = 5  # denials within some seconds are worth a report
_MOST_WAITING: Final = 100_000  # lines
_MOST_ADDRESSES: Final = 10_000
_PERIOD_S: Final = 60.0
_MOST_TEXT: Final = 200

# Fields that are secret, long, or say nothing about the object.
_LEFT_OUT: Final = frozenset(
    {"secret_key", "properties", "subscription", "born_timestamp", "sys_flag", "flag"}
)
_SETTINGS: Final = frozenset(
    {RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG}
)  # their bodies have lines such as key=value

_TRUSTED: Final = frozenset(int(row.code) for row in ROWS if row.access in ADMINISTRATORS)
# Brokers send the others of the cluster all the time: registrations, and slaves' copies of the state of a master.
_ADMIN: Final = frozenset(int(row.code) for row in ROWS if row.access is Access.ADMIN)

Done = Callable[[int, str | None], None]


class Audit:
    """Notes requests for administrators and denials.

    Args:
        path: the file; None writes no file, but counts denials, and logs them.
    Attributes:
        codes: the requests of which every answer is noted.
        denials: their number, by kind.
        lost: lines that could not be written.
        again: the latest denial, if there were many within the last seconds.
        problem: why the file cannot be written; "" if it can.
    """

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self.codes = _ADMIN
        self.denials: Counter[str] = Counter({kind.value: 0 for kind in DenialKind})
        self.lost = 0
        self.again = Recent(clock, AGAIN)
        self.problem = ""
        self._path = path
        self._clock = clock
        self._waiting: deque[str] = deque()
        self._limits = {
            True: _Limit(clock),
            False: _Limit(clock),
        }  # of requests for administrators, and of others

    @property
    def is_due(self) -> bool:
        """Whether lines wait for `write`, or the file could not be written."""
        return bool(self._waiting or self.problem)

    def begin(self, peer: Caller, command: Command, header: Request[Any]) -> Done:
        """Note a request for administrators that is handled now. Call the result with the answer's code and remark."""
        line = self._line("admin", peer, command, header)

        def done(code: int, remark: str | None) -> None:
            self._add(line | {"result": code} | ({"remark": shown(remark)} if remark and code else {}))

        return done

    def denied(
        self, peer: Caller, command: Command, header: Request[Any] | None, error: AccessDenied
    ) -> None:
        """Count a denial, and note it."""
        self.denials[error.kind.value] += 1
        remark = shown(error.remark.removeprefix(ACCESS_EXCEPTION))
        who = f"{_name(command.code)} of {peer.address}"
        if error.kind is DenialKind.UNKNOWN_ACCOUNT and command.ext_fields().get(ACCESS_KEY) is None:
            who += ", which sends no access key"
        self.again.note(f"requests are denied again and again, the last one is {who}: {remark}")
        number, left_out = self._limits[command.code in _TRUSTED].count(peer.host[:-PORT_BYTES])
        if number > MOST_A_MINUTE:
            return
        if left_out:
            address = peer.address.rpartition(":")[0]
            self._add({"time": self._time(), "event": "left_out", "address": address, "count": left_out})
        result = {"result": error.code, "reason": error.kind.value, "remark": remark}
        self._add(self._line("denied", peer, command, header) | result)
        if number <= MOST_LOGGED:
            more = f" ({left_out} more were not noted)" if left_out else ""
            last = "; more of this address in the next minute are not logged" if number == MOST_LOGGED else ""
            log.warning(
                "request %s of %s is denied: %s%s%s", _name(command.code), peer.address, remark, more, last
            )

    def write(self) -> None:
        """Append the waiting lines to the file. Blocks: call it in a thread. Never raises."""
        lines = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if self._path is None:
            return
        try:
            self._rotate(self._path)
            with self._path.open("a", encoding="utf-8") as file:
                file.write("".join(lines))
        except OSError as error:
            self.lost += len(lines)
            if not self.problem:
                log.error("%s cannot be written, its lines are lost: %s", self._path, error)
            why = error.strerror or error
            self.problem = f"the audit log {self._path} cannot be written ({why}): {self.lost} lines are lost"
        else:
            self.problem = ""

    @staticmethod
    def _rotate(path: Path) -> None:
        """Raises: OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.stat().st_size < SIZE_BYTES:
            return
        for number in range(KEPT_FILES, 0, -1):
            older = path.with_name(f"{path.name}.{number - 1}") if number > 1 else path
            if older.exists():
                older.replace(path.with_name(f"{path.name}.{number}"))

    def _line(
        self, event: str, peer: Caller, command: Command, header: Request[Any] | None
    ) -> dict[str, Any]:
        line: dict[str, Any] = {"time": self._time(), "event": event}
        if peer.principal is not None:
            line["account"] = peer.principal.access_key
        elif event == "denied":
            claimed = command.ext_fields().get(ACCESS_KEY)
            line |= {"claimed": shown(claimed)} if claimed is not None else {}
        found = {} if header is None else _object(header, command)
        return line | {
            "address": peer.address,
            "code": command.code,
            "request": _name(command.code),
            "object": found,
        }

    def _time(self) -> str:
        moment = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        return moment.replace("+00:00", "Z")

    def _add(self, line: dict[str, Any]) -> None:
        if self._path is None:
            return
        if len(self._waiting) >= _MOST_WAITING:
            self.lost += 1
            return
        self._waiting.append(json.dumps(line) + "\n")


class _Limit:
    """Counts what an address causes in a minute. Of too many addresses it forgets those counted longest ago."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[bytes, tuple[float, int]] = {}  # the minute's end, and the number in it

    def count(self, address: bytes) -> tuple[int, int]:
        """Count one more. Returns its number in the minute, and how many were left out in the one before."""
        key = address[:8] if len(address) > 4 else address  # a host has a whole /64 of IPv6 addresses
        now = self._clock.monotonic()
        end, number = self._counts.pop(key, (0.0, 0))
        left_out = 0
        if now >= end:
            left_out, end, number = max(0, number - MOST_A_MINUTE), now + _PERIOD_S, 0
        if len(self._counts) >= _MOST_ADDRESSES:
            del self._counts[next(iter(self._counts))]
        self._counts[key] = end, number + 1
        return number + 1, left_out


def _name(code: int) -> str:
    row = BY_CODE.get(code)
    return row.name if row is not None else str(code)


def _object(header: Request[Any], command: Command) -> dict[str, str]:
    """The fields of a request that say what it is about. Values are texts without control characters."""
    found = {}
    for name in header.__struct_fields__:
        value = getattr(header, name)
        if name not in _LEFT_OUT and value is not None and value != "":
            found[name] = shown(value, _MOST_TEXT)
    if command.code in _SETTINGS:
        lines = bytes(command.body[:10_000]).decode("utf-8", "replace").splitlines()
        found["settings"] = shown(" ".join(line.partition("=")[0].strip() for line in lines))
    return found
