"""The side of Java in a talk with Spark's daemon of Python workers."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SETTINGS = {
    "PYTHON_UNIX_DOMAIN_ENABLED": "true",
    "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
    "SPARK_REUSE_WORKER": "1",
}
WORKER = """
{imports}
from pyspark import worker

def main(infile, outfile):
    if infile.read(1) != b"1":
        worker.main(infile, outfile)
"""


def said_by_idle_worker(daemon, imports):
    """What a daemon and its worker print if Java closes the worker after one task."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # pytest's folders are too long for a socket's address
        return _said(daemon, imports, Path(folder))


def _said(daemon, imports, folder):
    (folder / "pyspark_worker.py").write_text(WORKER.format(imports=imports))
    folders = {"PYTHON_WORKER_FACTORY_SOCK_DIR": str(folder), "PYTHONPATH": str(folder)}
    with subprocess.Popen(
        [sys.executable, "-m", daemon, "pyspark_worker"],
        env=os.environ | SETTINGS | folders,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        with socket.socket(socket.AF_UNIX) as java:
            java.connect(_text(process.stdout))
            worker = int.from_bytes(java.recv(4), "big")
            java.send(b"1")
        while Path(f"/proc/{worker}").exists():
            time.sleep(0.01)
        return process.communicate()[1].decode()


def _text(stream):
    """A text as the daemon writes it: its length in four bytes, then UTF-8."""
    return stream.read(int.from_bytes(stream.read(4), "big")).decode()
