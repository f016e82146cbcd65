import os
import subprocess
import sys

import pytest

HUNG_UP = """
import asyncio, os, signal
from sparrowmq.cli.servers import hangup
from sparrowmq.cli.servers import serve

class Starting:
    async def __aenter__(self):
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.01)
        return self
    async def __aexit__(self, *error):
        pass
    async def serve(self):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(60)

hangup.remember()
serve.run(Starting, lambda _: "up", RELOAD)
"""


@pytest.mark.parametrize(("reload", "said"), [("lambda _: print('read anew')", "read anew\nup\n"), ("None", "up\n")])
def test_a_hangup_while_it_starts_is_kept_until_it_runs(reload, said):
    program = [sys.executable, "-c", HUNG_UP.replace("RELOAD", reload)]
    done = subprocess.run(program, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout) == (0, said), done.stderr


@pytest.mark.parametrize("script", ["mqnamesrv", "mqbroker"])
def test_a_hangup_before_the_imports_does_not_end_it_either(script):
    program = (
        "import os, signal; from sparrowmq.cli import scripts; "
        f"scripts._run = lambda *_: os.kill(os.getpid(), signal.SIGHUP); scripts.{script}(); print('alive')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20)
    assert done.stdout == "alive\n"


def test_a_server_with_nothing_to_read_anew_ends_with_its_terminal():
    ours, terminal = os.openpty()
    program = [sys.executable, "-c", HUNG_UP.replace("RELOAD", "None")]
    done = subprocess.run(program, stdin=terminal, capture_output=True, text=True, timeout=20)
    os.close(ours)
    os.close(terminal)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
