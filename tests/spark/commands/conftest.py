"""The fixtures of the pipelines' tests."""

from tests.spark.pipelines.conftest import folder, namesrv, topic

__all__ = ["folder", "namesrv", "topic"]
