"""A substitute for the source where it cannot be imported; it raises the reason.

Spark ignores a data source that fails to import, and then only says that there is none of that name. This module needs
nothing but pyspark 4.0.
"""

from __future__ import annotations

import importlib
from typing import Any, NoReturn

import pyspark
from pyspark.sql.datasource import DataSource

from sparrowmq.errors import ConfigError


class UnusableSource(DataSource):
    """A source named `rocketmq`, of which every use is an error that says what is missing."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> NoReturn:
        raise why_unusable()

    def reader(self, schema: Any) -> NoReturn:
        raise why_unusable()

    def streamReader(self, schema: Any) -> NoReturn:
        raise why_unusable()

    def writer(self, schema: Any, overwrite: bool) -> NoReturn:
        raise why_unusable()

    def streamWriter(self, schema: Any, overwrite: bool) -> NoReturn:
        raise why_unusable()


def why_unusable() -> ConfigError:
    """The error of importing the source here."""
    try:
        importlib.import_module("sparrowmq.spark.source_and_sink")
        reason = "a process of Spark could not import it, though this one can"
    except ImportError as error:
        reason = str(error)
    return ConfigError(
        f'format("rocketmq") needs pyspark 4.1, 4.2 or 4.3 (here is {pyspark.__version__}), pyarrow and numpy: run '
        f"`pip install 'sparrowmq[spark]'` for the Python of Spark's driver and workers ({reason})"
    )
