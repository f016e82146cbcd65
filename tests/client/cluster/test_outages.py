"""An outage is told when it begins and when it ends, however often it is met."""

from sparrowmq.client.cluster.blocking_network import Outages


def test_an_outage_is_told_twice(caplog):
    now = [10.0]
    outages = Outages(lambda: now[0])
    outages.end("broker a")
    for _attempt in range(3):
        outages.begin("broker a", "refused", "its queues are held")
        outages.begin("broker b", "refused")
    now[0] = 12.6
    outages.end("broker a")
    outages.end("broker a")
    outages.end_all()
    outages.begin("broker a", "refused again")
    assert caplog.messages == [
        "broker a is away; its queues are held: refused",
        "broker b is away; it is waited for: refused",
        "broker a is back after 3 s",
        "broker b is back after 3 s",
        "broker a is away; it is waited for: refused again",
    ]
    assert {record.name for record in caplog.records} == {"sparrowmq.client.cluster.blocking_network"}
