"""sparrowmq.spark.import_error_source: where the source cannot be imported, the error says why."""

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

import pyspark
from pyspark import cloudpickle

from sparrowmq.errors import ConfigError
from sparrowmq.spark.import_error_source import UnusableSource

WITHOUT_ARROW = """
import sys
sys.modules["pyarrow"] = None
from pyspark_rocketmq import DefaultSource
print(DefaultSource.name())
DefaultSource({}).schema()
"""


def test_every_use_says_what_is_needed():
    assert UnusableSource.name() == "rocketmq"
    source = cloudpickle.loads(cloudpickle.dumps(UnusableSource))({})
    for use in (
        source.schema,
        lambda: source.reader(None),
        lambda: source.streamReader(None),
        lambda: source.writer(None, False),
        lambda: source.streamWriter(None, False),
    ):
        with pytest.raises(ConfigError, match=rf"needs pyspark 4\.1, 4\.2 or 4\.3 \(here is {pyspark.__version__}"):
            use()


def test_what_is_missing_is_named():
    told = subprocess.run([sys.executable, "-c", WITHOUT_ARROW], capture_output=True, text=True, timeout=60)
    assert told.stdout == "rocketmq\n"
    assert "pip install 'sparrowmq[spark]'" in told.stderr and "pyarrow" in told.stderr
