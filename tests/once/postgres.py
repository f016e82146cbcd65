"""A PostgreSQL for tests, as Debian's package has it: in a scratch folder, on this machine alone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.interop.apache import free_ports
from tests.interop.child import Child, scratch

USER: Final = "postgres"
FOLDERS: Final = sorted(Path("/usr/lib/postgresql").glob("*/bin")) or [
    Path(found).parent for found in [shutil.which("initdb")] if found
]
needs_postgres = pytest.mark.skipif(not FOLDERS, reason="needs PostgreSQL (Debian: apt install postgresql)")
# It refuses to run as root.
AS_USER: Final = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if os.getuid() == 0 else []


class LivePostgres(Child):
    """Serves one database, without syncs."""

    def __init__(self) -> None:
        home = scratch("postgres")
        if AS_USER:
            shutil.chown(home.name, USER, USER)
        folder = f"{home.name}/cluster"
        [self.port] = free_ports(1)
        initdb = [str(FOLDERS[-1] / "initdb"), "-U", USER, "-A", "trust", "-D", folder, "--no-sync"]
        subprocess.run([*AS_USER, *initdb], check=True, capture_output=True)
        options = [f"port={self.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={home.name}"]
        settings = [part for option in [*options, "fsync=off"] for part in ("-c", option)]
        super().__init__(home, [*AS_USER, str(FOLDERS[-1] / "postgres"), "-D", folder, *settings])

    def restart(self) -> None:
        """End it and its connections, as an operator would, and start it again."""
        self._running().send_signal(signal.SIGINT)
        self._running().wait()
        self.__enter__()

    @property
    def url(self) -> str:
        """The address for SQLAlchemy."""
        return f"postgresql+psycopg://{USER}@127.0.0.1:{self.port}/postgres"

    def _wait_ready(self) -> None:
        self.wait_for("database system is ready to accept connections")
