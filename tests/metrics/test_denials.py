from sparrowmq.auth.audit_log import Audit
from sparrowmq.errors import AccessDenied, DenialKind
from sparrowmq.loop.clock import SystemClock
from sparrowmq.metrics.figures import Figures
from sparrowmq.metrics.server_figures import declare_denials
from tests.auth.asked import received, send


def test_denials_are_shown_by_reason(tmp_path):
    figures, audit = Figures(), Audit(tmp_path / "audit.log", SystemClock())
    declare_denials(figures, audit)
    peer, command, _, header = received(send("orders"))
    for _ in range(3):
        audit.denied(peer, command, header, AccessDenied("no").of_kind(DenialKind.NEEDS_ADMIN))
    audit._files["denied"].lost_lines = 7
    shown = figures.values("sparrowmq_denials_total")
    assert shown == {(kind.value,): 3 if kind is DenialKind.NEEDS_ADMIN else 0 for kind in DenialKind}
    assert figures.value("sparrowmq_audit_lines_lost_total") == 7


def test_without_access_control_there_are_no_such_figures():
    figures = Figures()
    declare_denials(figures, None)
    assert list(figures) == []
