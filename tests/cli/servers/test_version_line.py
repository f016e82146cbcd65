import os
import re
import subprocess
import sys

import pytest

from sparrowmq import compiled


def first_line(log: str) -> str:
    return log.splitlines()[0].partition("sparrowmq.cli.servers.serve: ")[2]


def test_the_first_line_of_a_brokers_log_says_what_runs_and_where_messages_go(start, broker_args, tmp_path):
    broker = start(*broker_args, "--set", "flushDiskType=ASYNC_FLUSH", env={"SPARROWMQ_SOURCE": "1"}).ready()
    said = first_line(broker.stop()[1])
    assert re.match(
        r"sparrowmq 0\.\d+\.\d+, not compiled, so at half its speed \(.*\), kernel [cp].*, Python 3\.\d+\.\d+, ", said
    )
    assert said.endswith(f", store {tmp_path}/store, ASYNC_FLUSH")


def test_a_name_server_says_what_runs(namesrv):
    assert first_line(namesrv.stop()[1]).startswith("sparrowmq 0.")


@pytest.mark.parametrize("source", ["", "1"])
def test_what_runs_compiled_says_so(source):
    imports = "from sparrowmq.loop import turn; from sparrowmq.cli.servers.serve import identity"
    code = f"{imports}; print(turn.__file__); print(identity())"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"SPARROWMQ_SOURCE": source},
        capture_output=True,
        text=True,
        check=True,
    )
    file, said = run.stdout.splitlines()
    assert (", compiled, " in said) == (not file.endswith(".py"))
    assert not source or file == compiled.source("sparrowmq.loop.turn")
