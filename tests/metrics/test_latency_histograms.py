"""How long requests took, under 5.x's name."""

from sparrowmq.metrics.figures import Figures
from sparrowmq.metrics.server_figures import declare_latencies
from sparrowmq.remoting.latencies import Latencies
from tests.metrics.test_series import read


def test_latencies_are_told_by_request_response_and_whether_the_poll_was_held() -> None:
    latencies = Latencies()
    latencies.add(310, 0, 0.0002, times=3)
    latencies.add(310, 10, 4.0)
    latencies.add(11, 9999, 15.0, was_held=True)
    figures = Figures()
    declare_latencies(figures, latencies)
    found = read(figures, {"node_id": "b"})

    def labels(**more: str) -> tuple[tuple[str, str], ...]:
        return tuple(sorted({"node_id": "b", "protocol_type": "remoting", **more}.items()))

    sends = labels(request_code="send_message_v2", response_code="success", is_long_polling="false")
    late = labels(request_code="send_message_v2", response_code="flush_disk_timeout", is_long_polling="false")
    held = labels(request_code="pull_message", response_code="9999", is_long_polling="true")
    name = "rocketmq_rpc_latency_milliseconds"
    assert found[f"{name}_count"] == {sends: 3, late: 1, held: 1}
    assert found[f"{name}_sum"][late] == 4000
    buckets = found[f"{name}_bucket"]
    assert buckets[tuple(sorted((*sends, ("le", "0.1"))))] == 0
    assert buckets[tuple(sorted((*sends, ("le", "0.3"))))] == 3
    assert buckets[tuple(sorted((*late, ("le", "3000"))))] == 0
    assert buckets[tuple(sorted((*late, ("le", "10000"))))] == 1


def test_long_steps_are_counted_by_request() -> None:
    latencies, figures = Latencies(), Figures()
    declare_latencies(figures, latencies)
    assert figures.values("sparrowmq_long_steps_total") == {}
    for code in (310, 310, 11):
        latencies.add_long_step(code)
    assert figures.values("sparrowmq_long_steps_total") == {("send_message_v2",): 2, ("pull_message",): 1}
