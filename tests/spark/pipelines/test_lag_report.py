"""sparrowmq.spark.pipelines.lag_report: how far groups are behind."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest

pytest.importorskip("pyspark")


from sparrowmq.client import blocking_client as sync
from sparrowmq.errors import ConfigError, NoGroup
from sparrowmq.spark.pipelines import Lag, lag
from sparrowmq.testing.background import BackgroundCluster


@pytest.fixture(scope="module")
def behind(namesrv):
    """A group that is three messages behind in `orders`."""
    with sync.connect(namesrv) as mq:
        mq.admin.create_topic("orders", queues=1)
        mq.admin.create_group("billing")
        for number in range(3):
            mq.send("orders", b"%d" % number)
        mq.admin.reset("billing", "orders", "earliest")
    return "billing"


def test_each_round_has_a_line_for_each_group_and_topic(namesrv, behind, tmp_path):
    pauses: list[float] = []
    rounds: list[list[Lag]] = []
    report = lag(
        [behind],
        name_server=namesrv,
        rounds=3,
        every_s=7,
        sleep=pauses.append,
        show=rounds.append,
        to=tmp_path / "lags",
        above=2,
    )
    assert pauses == [7, 7]
    assert [[(each.group, each.topic, each.behind) for each in lines] for lines in rounds] == [
        [("billing", "orders", 3)]
    ] * 3
    assert (report.written, report.errors, report.batches) == (3, 1, 3)
    assert report.offsets == {"billing": {"orders": {"broker-0": {"0": 0}}}}
    kept = [json.loads(line) for line in (tmp_path / "lags").read_text().splitlines()]
    assert [each["behind"] for each in kept] == [3, 3, 3]


def test_without_names_all_groups_are_shown_and_one_that_is_not_there_is_told(namesrv, behind):
    shown: list[Lag] = []
    lag(name_server=namesrv, show=shown.extend)
    assert behind in {each.group for each in shown}
    with pytest.raises(NoGroup, match="nobody"):
        lag(["nobody"], name_server=namesrv)
    with pytest.raises(ConfigError, match="every_s must be above 0"):
        lag(name_server=namesrv, every_s=0)
    for endless in ("nan", "inf"):
        with pytest.raises(ConfigError, match="every_s must be above 0"):
            lag(name_server=namesrv, every_s=float(endless))


@pytest.mark.parametrize(
    ("groups", "whose"), [(["billing"], "group billing"), ([], "the groups of the cluster are not known")]
)
def test_a_group_that_nobody_can_tell_of_is_an_error_of_its_round(groups, whose, tmp_path):
    said: list[str] = []
    with ExitStack() as stack:
        namesrv = stack.enter_context(BackgroundCluster(tmp_path)).namesrv
        with sync.connect(namesrv) as mq:
            mq.admin.create_topic("orders", queues=1)
            mq.admin.create_group("billing")
            mq.admin.reset("billing", "orders", "earliest")

        def goes_away(_pause_s: float) -> None:
            stack.close()

        report = lag(groups, name_server=namesrv, rounds=2, sleep=goes_away, say=said.append)
    assert (report.batches, report.written, report.errors) == (2, 1, 1)
    assert said[0].startswith(f"{whose}: ") and namesrv in said[0]
