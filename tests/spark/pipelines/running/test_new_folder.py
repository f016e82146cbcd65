"""sparrowmq.spark.pipelines.running.new_folder: what pipelines write into."""

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines import trace
from sparrowmq.spark.pipelines.running.new_folder import demand_absent
from sparrowmq.spark.pipelines.sql import Answer


def test_what_is_there_is_left_alone(tmp_path):
    demand_absent(tmp_path / "new")
    with pytest.raises(ConfigError, match="is there already; name another folder"):
        demand_absent(tmp_path)


def test_answers_and_reports_do_not_go_into_a_folder_that_is_there(tmp_path):
    answer: Answer = Answer.__new__(Answer)  # nothing of it is asked before
    with pytest.raises(ConfigError, match="is there already"):
        answer.save(tmp_path)
    with pytest.raises(ConfigError, match="is there already"):
        trace(name_server="127.0.0.1:1", to=tmp_path)
