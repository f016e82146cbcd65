"""The folders of the demo: tables to keep, the broker's store, and temporary files."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from sparrowmq.errors import ConfigError


class Folders:
    """The folders of one run.

    Args:
        out: the folder of everything; a new one below the system's temporary folder by default.
    Raises:
        ConfigError: an earlier run left its tables there, or it cannot be written.
    """

    def __init__(self, out: Path | None = None) -> None:
        self.is_temporary = out is None
        self.out = Path(tempfile.mkdtemp(prefix="sparrowmq-demo-")) if out is None else out.absolute()
        for path in self._all():
            if path.exists():
                raise ConfigError(f"{path} is there already; remove it, or choose another folder with --out")
        try:
            self.work.mkdir(parents=True)
        except OSError as error:
            raise ConfigError(f"cannot write to {self.out}: {error.strerror}; choose another --out") from None

    @property
    def flights_table(self) -> Path:
        return self.out / "flights_table"

    @property
    def statistics_table(self) -> Path:
        return self.out / "statistics_table"

    @property
    def store(self) -> Path:
        """The broker's files; a quarter of a GB."""
        return self.out / "store"

    @property
    def work(self) -> Path:
        """Checkpoints, Spark's own files and its log."""
        return self.out / "work"

    def keep_tables(self) -> None:
        """Remove temporary files after a good run; a store in a temporary folder is not needed again."""
        _remove(self.work)
        if self.is_temporary:
            _remove(self.store)

    def remove(self) -> None:
        """The end of a run that was stopped: half a table is worse than none."""
        for path in self._all():
            _remove(path)
        if self.is_temporary:
            _remove(self.out)

    def _all(self) -> tuple[Path, ...]:
        return self.flights_table, self.statistics_table, self.store, self.work


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
