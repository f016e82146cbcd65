"""Two more places that show conditions: the console's list of troubles, and the alerts of examples/monitoring.

The console looks once, in this process. The metrics that a server showed while it had a condition become a minute of a
past of their own, which a real Prometheus reads after all causes (tests/simulation/past_alerts.py).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

from sparrowmq import Credentials
from sparrowmq.console.cluster_view import ClusterView
from sparrowmq.console.troubles import Trouble, Troubles
from sparrowmq.errors import NetworkError
from sparrowmq.loop.clock import SystemClock
from tests.conditions.field import ADMIN, BY_NAME, FieldServer, until
from tests.simulation.past_alerts import SCRAPE_S, labelled, pasts

_SHOWN_S: Final = 20.0
_LASTS_S: Final = 60
_APART_S: Final = 600  # no condition is in the past of another
_BEGIN: Final = 1_800_000_000


class OtherPlaces:
    """Checks the console, and collects the metrics."""

    def __init__(self) -> None:
        self._pages: list[tuple[str, str]] = []

    def see(self, kind: str, server: FieldServer) -> None:
        """Check that the console names a condition of a server with its remedy, and keep the server's metrics."""
        is_first = kind not in dict(self._pages)
        # A full disk has room for a moment now and then.
        until(lambda: self._keeps_page(kind, server), _SHOWN_S, f"the metrics do not show {kind} any more")
        if is_first and server.namesrv:
            until(lambda: _in_console(kind, server), _SHOWN_S, f"the console does not show {kind}")

    def _keeps_page(self, kind: str, server: FieldServer) -> bool:
        page = server.get("/metrics")[1]
        if f'condition="{kind}"' not in page:
            return False
        self._pages.append((kind, page))
        return True

    def without_alert(self, folder: Path) -> list[str]:
        """Return the conditions for which no alert with the right severity and name has fired."""
        metrics = folder / "metrics"
        with metrics.open("w") as sink:
            for number, (_, page) in enumerate(self._pages):
                for at in range(0, _LASTS_S + 1, SCRAPE_S):
                    rows = labelled(page, "rocketmq", str(number), _BEGIN + _APART_S * number + at)
                    sink.writelines(f"{name}{{{labels}}} {rest}\n" for name, labels, rest in rows)
            sink.write("# EOF\n")
        hours = _APART_S * len(self._pages) / 3600
        fired = {
            (past.name, past.labels["instance"], past.labels["condition"])
            for past in (pasts(metrics, _BEGIN, hours) if self._pages else ())
            if past.is_firing and "condition" in past.labels
        }
        alert = {"critical": "BrokerCondition", "warning": "BrokerWarning"}
        return [
            kind
            for number, (kind, _) in enumerate(self._pages)
            if (alert[BY_NAME[kind].severity.value], str(number), kind) not in fired
        ]


def _in_console(kind: str, server: FieldServer) -> bool:
    wanted = ("no_name_server", "") if kind == "unregistered" else (kind, server.address)
    return any(
        each.name == wanted[0] and wanted[1] in each.subject and (each.remedy or each.cause)
        for each in asyncio.run(_troubles(server.namesrv))
    )


async def _troubles(namesrv: str) -> tuple[Trouble, ...]:
    async with ClusterView(namesrv, Credentials(*ADMIN)) as look:
        troubles = Troubles(look, SystemClock())
        with suppress(NetworkError):  # it has noted that no name server answers
            await troubles.poll()
        return troubles.current()
