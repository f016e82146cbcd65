"""Settings that change while their server runs: by an operator's request, or by SIGHUP.

    UPDATE_BROKER_CONFIG, UPDATE_NAMESRV_CONFIG     key=value lines
      known, changeable, allowed?                   one invalid setting refuses all, with a sentence for each
      current = the new settings, every part uses them
      the file given with -c                        the changed keys alone; comments and order stay as they are

    SIGHUP                                          all sources are read again, as at the start
      settings that can change, and did             used as above; nothing is written

The declaration of a setting says that it can change: `setting(..., live=True)`. Java ignores unknown keys, accepts any
value for the others, many without effect until the next start, and writes all its settings into the file.
Source: Configuration and AdminBrokerProcessor.updateBrokerConfig, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Generic, TypeVar

from sparrowmq.core import snapshot
from sparrowmq.core.safe_text import write_problem
from sparrowmq.errors import ConfigError
from sparrowmq.settings.settings import Settings, build, keyed_fields, nearest_key, refusal_advice

log = logging.getLogger(__name__)

SAVE_AGAIN_S: Final = 5.0

S = TypeVar("S", bound=Settings)


class LiveSettings(Generic[S]):
    """A server's settings as they are now. `file` gets the changes; without one they last until the server ends."""

    def __init__(self, settings: S, file: Path | None = None) -> None:
        self.current = settings
        self.count = 0  # how often they have changed
        self.problem = ""  # why the file lacks a change; "" if it lacks none, or there is no file for changes
        self._unsaved: dict[str, str] = {}
        self._file = file
        self._subscribers: list[Callable[[S], object]] = []
        self._save_lock = asyncio.Lock()

    def subscribe(self, callback: Callable[[S], object]) -> None:
        self._subscribers.append(callback)

    async def change(self, values: Mapping[str, str], requester: str) -> None:
        """Change settings: all that are given, or none. The log names the requester. Raises: ConfigError, one is
        unknown, cannot change, or may not have this value; or they are changed, but could not be saved.
        """
        changes = self._changes(values)
        self._apply(changes, requester)
        if changes:
            self._unsaved |= changes
            await self._save_unsaved()

    async def save_again(self) -> None:
        with suppress(ConfigError):
            await self._save_unsaved()

    def reload(self, written: S) -> None:
        """Take what can change of the settings as they are written now; the log tells what waits for a restart."""
        self._unsaved, self.problem = {}, ""  # what is written counts
        current, live = self.current.as_properties(), live_keys(type(self.current))
        changes = {key: value for key, value in written.as_properties().items() if current.get(key) != value}
        for key in sorted(changes.keys() - live):
            log.warning("%s cannot change while the server runs: its new value counts from the next start", key)
        live_changes = {key: value for key, value in changes.items() if key in live}
        if live_changes:
            self._apply(live_changes, "a reload")
        else:
            log.info("reloaded: nothing that can change has changed")

    def _apply(self, changes: Mapping[str, str], requester: str) -> None:
        """Have every part use them. Raises: ConfigError, a value is wrong; then nothing has changed."""
        changed, _ = build(type(self.current), changes, "the request", self.current, is_strict=True)
        for key, value in changes.items():
            log.info("%s is changed to %s by %s", key, value, requester)
        self.current = changed
        self.count += 1
        for callback in self._subscribers:
            callback(changed)

    def _changes(self, values: Mapping[str, str]) -> dict[str, str]:
        current, live = self.current.as_shown(), live_keys(type(self.current))
        changes = {key: value.strip() for key, value in values.items() if current.get(key) != value.strip()}
        problems = [self._problem(key) for key in changes if key not in live]
        if problems:
            raise ConfigError("; ".join(problems))
        return changes

    def _problem(self, key: str) -> str:
        cls = type(self.current)
        if any(key in setting.metadata["keys"] for setting in keyed_fields(cls)):
            return f"{key} cannot change while the server runs: set it in its file, and restart the server"
        if key in cls.ACCEPTED:
            return f"{key} has no effect here: {cls.ACCEPTED[key]}"
        if (instead := refusal_advice(cls, key)) is not None:
            return f"{key} cannot be set here: {instead}"
        nearest = nearest_key(cls, key)
        return f"{key} is no setting" + (f"; did you mean {nearest}?" if nearest else "")

    async def _save_unsaved(self) -> None:
        async with self._save_lock:
            changes = dict(self._unsaved)
            if not changes:
                return
            try:
                await asyncio.to_thread(self._save, changes)
            except (OSError, ValueError) as error:
                self.problem = (
                    f"{', '.join(changes)} changed, but {self._file} could not be written "
                    f"({write_problem(error)}): the change lasts until the server ends"
                )
                raise ConfigError(self.problem) from error
            self.problem = ""
            self._unsaved = {key: value for key, value in self._unsaved.items() if changes.get(key) != value}

    def _save(self, changes: Mapping[str, str]) -> None:
        if self._file is None or self._file.suffix == ".toml":
            reason = "a TOML file is not written" if self._file else "the server has no file (-c)"
            log.warning("%s: the change lasts until the server ends, as %s", ", ".join(changes), reason)
            return
        file = self._file.resolve()
        mode = file.stat().st_mode
        text = rewritten(file.read_text("utf-8-sig", "surrogateescape"), changes)
        snapshot.save(file, text.encode("utf-8", "surrogateescape"), encode=bytes)
        file.chmod(mode & 0o777)


def with_live(now: S, written: S) -> S:
    """Settings with what can change of others."""
    live = live_keys(type(now))
    changed, _ = build(
        type(now), {key: value for key, value in written.as_properties().items() if key in live}, "a reload", now
    )
    return changed


def live_keys(cls: type[Settings]) -> set[str]:
    return {key for setting in keyed_fields(cls) if setting.metadata["live"] for key in setting.metadata["keys"]}


def rewritten(text: str, changes: Mapping[str, str]) -> str:
    """The text of a .properties file with some values changed or added, and everything else as it was."""
    # Here and not above: it takes 35 ms, and hardly any server needs it.
    import javaproperties

    lines = javaproperties.PropertiesFile.load(io.StringIO(text))
    for key, value in changes.items():
        lines[key] = value
    return str(lines.dumps(ensure_ascii=False))
