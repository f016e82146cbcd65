"""The figures of access control: denied requests by reason, and lines that the audit log lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrowmq.metrics.figures import Figures

if TYPE_CHECKING:  # a server without access control loads nothing of it
    from sparrowmq.auth.audit_log import Audit


def declare_denials(figures: Figures, audit: Audit | None) -> None:
    """Add the figures of an audit log. Without access control there is none, and no figures."""
    if audit is None:
        return
    figures.counters(
        "sparrowmq_denials_total",
        "requests that access control denied",
        ("reason",),
        lambda: [((reason,), count) for reason, count in audit.denials.items()],
    )
    figures.counted(
        "sparrowmq_audit_lines_lost_total",
        "lines that the audit log could not take",
        lambda: audit.lost,
    )
