def test_brokers_are_listed_with_their_load(admin):
    head, row = admin.ok("clusterList").splitlines()
    assert head.split()[-3:] == ["#PCWait(ms)", "#Hour", "#SPACE"]
    assert row.split()[:5] == ["DefaultCluster", "broker-0", "0", admin.broker, "V4_9_8"]
    assert "(0,0ms)" in row


def test_more_figures_are_those_of_today_and_yesterday(admin, topic):
    admin.send(topic, b"x")
    head, row = admin.ok("clusterList -m").splitlines()
    assert head.split()[-1] == "#OutTotalToday"
    cells = row.split()
    assert cells[:3] == ["DefaultCluster", "broker-0", "0"] and int(cells[4]) >= 1
