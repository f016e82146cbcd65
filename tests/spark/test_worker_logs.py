"""sparrowmq.spark.worker: in a process without a configuration lines have a time and a name."""

import re
import subprocess
import sys

PROGRAM = """
import logging
{before}
from sparrowmq.spark.worker import show_warnings
show_warnings()
show_warnings()
from sparrowmq.spark.source.partition_ranges import lose
lose("rows 1 to 5 are gone", fail=False)
"""


def said(before=""):
    """What a new process prints that loses rows."""
    command = [sys.executable, "-c", PROGRAM.format(before=before)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stderr


def test_a_line_has_its_time_level_and_logger():
    stamp, logger = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", r"sparrowmq\.spark\.source\.partition_ranges"
    line = rf"{stamp} WARNING {logger}: data lost: rows 1 to 5 are gone\n"
    assert re.fullmatch(line, said())


def test_a_configuration_is_left_alone():
    assert said('logging.basicConfig(format="mine: %(message)s")') == "mine: data lost: rows 1 to 5 are gone\n"
