"""Several brokers of one machine as one service: `mqbroker --brokers N`, because one broker uses one processor.

                  listenPort   brokerName    storePathRootDir    metrics
    broker 0      10911        NAME-0        ROOT-0              5557
    broker 1      10921        NAME-1        ROOT-1              5558          and so on, from the one configuration

Each is a process that shares the output streams of this one. A process that ends is started again: after a second,
after twice as long each time until it has run for a minute, half a minute at most. Wrong settings end all of them. A
signal to this process stops them in order, and SIGHUP goes to each.

The stdin of each is a pipe that only this process holds open. If this process is killed, the pipe ends, and so do the
brokers, in order. A halted broker ends only when it runs again; a new start waits until its store is free.

Under systemd (systemd.py) this process says that it serves when each broker did. A broker whose loop hangs for
WatchdogSec is killed, and started again like any other; the other brokers go on.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.cli.servers.systemd import ALIVE, READY, Listener, Notifier
from sparrowmq.store.vfs import lock_holder

log = logging.getLogger(__name__)

PORT_STEP: Final = 10  # a broker has listenPort, and beside it the fast one and that of slaves
_WRONG_SETTINGS: Final = 2
_POLL_S: Final = 0.1
_FIRST_PAUSE_S: Final = 1.0
_MAX_PAUSE_S: Final = 30.0
_STEADY_AFTER_S: Final = 60.0
_HOLDER_LOG_PERIOD_S: Final = 60.0


def broker_command(settings: BrokerSettings, options: Mapping[str, Any], number: int) -> list[str]:
    """Return the command line of broker `number`, from that of all."""
    command_line = [sys.executable, "-m", "sparrowmq", "broker", "--ends-with-stdin"]
    values = {"-c": "file", "-pc": "proxy_file", "-n": "namesrv", "--log-size": "log_size"}
    for option, name in values.items():
        command_line += [option, str(options[name])] if options[name] is not None else []
    command_line += ["--log-format", options["log_format"], "--log-keep", str(options["log_keep"])]
    command_line += ["--log-file", f"{options['log_file']}-{number}"] if options["log_file"] else []
    flags = {"--enable-proxy": "enable_proxy", "--insecure": "insecure", "-v": "verbose"}
    command_line += [flag for flag, name in flags.items() if options[name]]
    derived = [f"{key}={value}" for key, value in derived_settings(settings, number).items()]
    return [
        *command_line,
        *(word for change in (*options["changes"], *options["pairs"], *derived) for word in ("--set", change)),
    ]


def derived_settings(settings: BrokerSettings, number: int) -> dict[str, str]:
    """Return the settings in which broker `number` differs from the configuration."""
    changes = {"brokerName": f"{settings.name}-{number}", "storePathRootDir": f"{settings.store_path}-{number}"}
    if settings.commit_log_path is not None:
        changes["storePathCommitLog"] = f"{settings.commit_log_path}-{number}"
    for key, port, step in (
        ("listenPort", settings.port, PORT_STEP),
        ("haListenPort", settings.ha_port, PORT_STEP),
        ("fastListenPort", settings.fast_port, PORT_STEP),
        ("metricsPromExporterPort", settings.metrics_port, 1),
        ("grpcServerPort", settings.grpc_port, 1),
    ):
        if port:  # 0 takes a free one, and what is not set goes by listenPort
            changes[key] = str(port + step * number)
    return changes


@dataclass(slots=True)
class _Broker:
    """One broker, and when it was started, or may be started again."""

    command_line: Sequence[str]
    store: str = ""  # the folder of its store
    process: subprocess.Popen[bytes] | None = None
    start_s: float = 0.0
    pause_s: float = _FIRST_PAUSE_S
    is_first_process: bool = True
    holder_pid: int = 0  # the process of an earlier run that has the store open
    holder_logged_s: float = 0.0  # when that was logged last
    has_served: bool = False
    alive_s: float | None = None  # when its loop said that it runs; None until it serves


class BrokerProcesses:
    """Keeps brokers running, given their command lines and the folders of their stores; `now_s` is monotonic."""

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        now_s: Callable[[], float] = time.monotonic,
        stores: Sequence[str] = (),
        notifier: Notifier | None = None,
    ) -> None:
        self._brokers = [_Broker(*pair) for pair in zip_longest(commands, stores, fillvalue="")]
        self._now_s = now_s
        self._is_stopping = False
        self._notifier = notifier or Notifier()
        self._listener = Listener() if self._notifier else None
        self._is_ready = False

    def run(self) -> int:
        """Keep them running until a signal; return the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._reload)
        status = 0  # of the program
        while not self._is_stopping and status != _WRONG_SETTINGS:
            status = self.start_due()
            self._supervise()
            time.sleep(_POLL_S)
        self._notifier.report_stopping()
        self.end()
        return status

    def start_due(self) -> int:
        """Start those that do not run, once it is time; `_WRONG_SETTINGS` if one never did for that reason, else 0."""
        for broker in self._brokers:
            status = None if broker.process is None else broker.process.poll()
            if broker.process is not None and status is None:
                continue
            if status == _WRONG_SETTINGS and broker.is_first_process and not self._was_steady(broker):
                return status
            if status is not None:
                self._note_end(broker, status)
            elif self._now_s() >= broker.start_s and not self._is_store_in_use(broker):
                # No other process has the other end of its stdin, as Python lets none inherit it.
                watched = self._listener.environment(self._notifier.watchdog_s) if self._listener is not None else {}
                broker.process = subprocess.Popen(
                    broker.command_line, stdin=subprocess.PIPE, env={**os.environ, **watched}
                )
                broker.start_s, broker.alive_s = self._now_s(), None
        return 0

    def end(self) -> None:
        """Have all of them stop in order, and wait for that."""
        running = [broker.process for broker in self._brokers if broker.process is not None]
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
            _close_stdin(process)

    def _supervise(self) -> None:
        """Hear which brokers live, kill one that hangs, and say to systemd how all of them are."""
        if self._listener is None:
            return
        running = {broker.process.pid: broker for broker in self._brokers if broker.process is not None}
        for process, lines in self._listener.receive():
            if process in running and not {READY, ALIVE}.isdisjoint(lines):
                running[process].alive_s, running[process].has_served = self._now_s(), True
        for process, broker in running.items():
            if broker.alive_s is not None and self._silence_s(broker) > self._notifier.watchdog_s > 0:
                log.error("the broker of process %d hangs (no sign for %.0f s)", process, self._silence_s(broker))
                broker.alive_s = None
                os.kill(process, signal.SIGKILL)
        if all(broker.has_served for broker in self._brokers) and not self._is_ready:
            self._is_ready = True
            self._notifier.say(READY, f"STATUS={len(self._brokers)} brokers serve")
        if self._is_ready:
            self._notifier.say(ALIVE)

    def _silence_s(self, broker: _Broker) -> float:
        return self._now_s() - (broker.alive_s or 0.0)

    def _is_store_in_use(self, broker: _Broker) -> bool:
        pid = lock_holder(os.path.join(broker.store, "lock")) if broker.store else 0
        if pid and (pid != broker.holder_pid or self._now_s() - broker.holder_logged_s >= _HOLDER_LOG_PERIOD_S):
            log.warning(
                "the store %s is in use by process %d, perhaps a broker of an earlier start that hangs or is halted; "
                "the broker starts once that has ended. `kill -CONT %d` lets a halted one end in order, "
                "`kill -KILL %d` ends it at once; either way no acknowledged message is lost",
                *(broker.store, pid, pid, pid),
            )
            broker.holder_logged_s = self._now_s()
        broker.holder_pid = pid
        return pid != 0

    def _was_steady(self, broker: _Broker) -> bool:
        return self._now_s() - broker.start_s >= _STEADY_AFTER_S

    def _note_end(self, broker: _Broker, status: int) -> None:
        """Say how it ended, and when it is started again."""
        assert broker.process is not None
        if self._was_steady(broker):
            broker.pause_s = _FIRST_PAUSE_S
        ending = f"with {status}" if status >= 0 else f"by {signal.Signals(-status).name}"
        if status == -signal.SIGBUS:
            ending += ", as when a file of its index was cut or cannot be read: see `sparrowmq store check`"
        if status == _WRONG_SETTINGS:
            ending += ", as its settings are wrong now (it said which): correct them, the other brokers go on meanwhile"
        log.error("a broker (process %d) ended %s; it starts again in %g s", broker.process.pid, ending, broker.pause_s)
        _close_stdin(broker.process)
        broker.is_first_process = False
        broker.process, broker.start_s = None, self._now_s() + broker.pause_s
        broker.pause_s = min(2 * broker.pause_s, _MAX_PAUSE_S)

    def _reload(self, *_: object) -> None:
        for broker in self._brokers:
            if broker.process is not None:
                broker.process.send_signal(signal.SIGHUP)

    def _stop(self, *_: object) -> None:
        self._is_stopping = True


def _close_stdin(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
