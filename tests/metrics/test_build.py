"""Each program says which version runs."""

import platform

from sparrowmq.metrics.build import declare_build
from sparrowmq.metrics.figures import Figures
from sparrowmq.version import VERSION


def test_the_labels_say_what_runs():
    figures = Figures()
    declare_build(figures)
    [((version, python, is_compiled), value)] = figures.values("sparrowmq_build_info").items()
    assert (version, python, value) == (VERSION, platform.python_version(), 1)
    assert is_compiled in ("true", "false")
