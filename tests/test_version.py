from importlib.metadata import version

import sparrowmq
from sparrowmq.version import VERSION


def test_the_version_is_that_of_the_distribution():
    assert version("sparrowmq") == VERSION == sparrowmq.__version__
