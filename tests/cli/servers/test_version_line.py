import os
import re
import subprocess
import sys

import pytest

from sparrowmq import kernel


def first_line(log: str) -> str:
    return log.splitlines()[0].partition("sparrowmq.cli.servers.serve: ")[2]


def test_the_first_line_of_a_brokers_log_says_what_runs_and_where_messages_go(start, broker_args, tmp_path):
    broker = start(*broker_args, "--set", "flushDiskType=ASYNC_FLUSH").ready()
    said = first_line(broker.stop()[1])
    assert re.match(r"sparrowmq 0\.\d+\.\d+, kernel [cp].*, Python 3\.\d+\.\d+, ", said)
    assert said.endswith(f", store {tmp_path}/store, ASYNC_FLUSH")


def test_a_name_server_says_what_runs(namesrv):
    assert first_line(namesrv.stop()[1]).startswith("sparrowmq 0.")


@pytest.mark.parametrize("form", ["", "plain"])
def test_a_kernel_that_runs_compiled_says_so(form):
    code = "from sparrowmq.kernel import records; from sparrowmq.cli.servers.serve import identity"
    run = subprocess.run(
        [sys.executable, "-c", f"{code}; print(records.__file__); print(identity())"],
        env=os.environ | {kernel.VARIABLE: form},
        capture_output=True,
        text=True,
        check=True,
    )
    file, said = run.stdout.splitlines()
    assert (", kernel compiled, " in said) == (not file.endswith(".py"))
    assert not form or (file.endswith(".py") and ", kernel plain (" in said)
