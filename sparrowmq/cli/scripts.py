"""The scripts that the package installs. Without the extra `server` they print their version, or what to install.

This file imports nothing of the extra. All other imports happen inside `_ending`, so that Ctrl-C during them prints no
traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EDQUOT, EFBIG, EIO, ENOSPC
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from sparrowmq.core.exit_status import INTERRUPTED
from sparrowmq.version import VERSION

# All of the extra but uvloop, which Windows has none of.
NEEDED: Final = ("click", "h11", "javaproperties", "lark", "prometheus_client", "yaml")
UNWRITABLE: Final = (ENOSPC, EDQUOT, EFBIG, EIO)  # EIO: the terminal is gone


def sparrowmq() -> None:
    """The script `sparrowmq`, and `smq`."""
    name = os.path.basename(sys.argv[0])  # the shell's completion goes by it
    with _ending(name):
        if not all(map(is_text, sys.argv)):
            print(f"{name}: the command line is not UTF-8; give such a body as a --file", file=sys.stderr)
            sys.exit(2)
        _run("smq" if name == "smq" else "sparrowmq", "sparrowmq.cli.main", "main")


def mqnamesrv() -> None:
    _serve("mqnamesrv", "sparrowmq.cli.servers.serve", "namesrv")


def mqbroker() -> None:
    _serve("mqbroker", "sparrowmq.cli.servers.serve", "broker")


def mqproxy() -> None:
    with _ending("mqproxy"):
        _run("mqproxy", "sparrowmq.cli.servers.proxy", "proxy")


def mqadmin() -> None:
    """The script `mqadmin`, which needs nothing of the extra but for an account (yaml)."""
    with _ending("mqadmin"):
        import_module("sparrowmq.cli.mqadmin.main").main()


def _serve(script: str, module: str, command: str) -> None:
    with _ending(script):
        import_module("sparrowmq.cli.servers.hangup").remember()  # the other imports take a while
        _run(script, module, command)


@contextmanager
def _ending(script: str) -> Iterator[None]:
    """End a script in order when Ctrl-C comes during its imports, or its output cannot be written."""
    # A socket or a file would get the number of a standard stream that is closed.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        if error.errno not in UNWRITABLE or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python reports it again at the end
        print(f"{script}: the output cannot be written: {error.strerror}", file=sys.stderr)
        sys.exit(1)


def is_text(word: str) -> bool:
    """Return whether a word of a command line is UTF-8."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _run(script: str, module: str, command: str) -> None:
    if sys.argv[1:2] == ["--version"]:
        print(f"sparrowmq, version {VERSION}", flush=True)  # the words of click, which may be missing
        return
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        print(
            f"{script}: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed; "
            "install the package with what its servers need: pip install 'sparrowmq[server]'",
            file=sys.stderr,
        )
        sys.exit(1)
    getattr(import_module(module), command)(prog_name=script)
