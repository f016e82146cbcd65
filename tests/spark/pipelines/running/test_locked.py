"""sparrowmq.spark.pipelines.running.locked: one process at a time."""

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.running.locked import locked


def test_a_folder_is_held_by_one_and_free_again_behind_it(tmp_path):
    with locked(tmp_path / "new"), pytest.raises(ConfigError, match="another run is at work"):
        locked(tmp_path / "new").__enter__()
    with locked(tmp_path / "new"):
        pass
