"""The restart of this process on request: it stops as by SIGTERM, and then begins again with the same command line.

`execve` replaces the program and keeps the process, its id and its streams. So systemd and containers see one process
that goes on, and a newer version that was installed meanwhile is used. Only a server that runs as a program allows it:
a broker inside another program would end that, too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Final, NoReturn

from sparrowmq.errors import ConfigError

log = logging.getLogger(__name__)

ANSWER_S: Final = 0.1  # for the answer to the request


class Restart:
    """The restart of one process.

    Attributes:
        stop: ends the server in order; None where it runs inside another program.
        check: raises ConfigError if the next start would fail at its settings.
        is_asked: whether to begin again once the server has ended.
    """

    def __init__(self) -> None:
        self.stop: Callable[[], object] | None = None
        self.check: Callable[[], object] = lambda: None
        self.is_asked = False
        self._environment = dict(os.environ)  # systemd's variables are taken out of it later

    def ask(self) -> None:
        """Restart soon. Raises: ConfigError, this cannot be, or the settings are wrong now; nothing is stopped."""
        if self.stop is None:
            raise ConfigError("this server runs inside another program; restart that one")
        self.check()
        if not self.is_asked:
            log.info("restarting on request")
            self.is_asked = True
            asyncio.get_running_loop().call_later(ANSWER_S, self.stop)

    def begin(self) -> NoReturn:
        """Run the same command line in this process."""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the new program handles it
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], self._environment)


OF_PROCESS: Final = Restart()
