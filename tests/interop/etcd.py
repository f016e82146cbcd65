"""An etcd for tests, as Debian's etcd-server has it: one member, on this machine alone, that comes and goes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

from tests.interop.apache import free_ports
from tests.interop.child import Child, scratch

PROGRAM: Final = shutil.which("etcd")
_NEEDS: Final = "needs etcd (Debian: apt install etcd-server)"
needs_etcd = pytest.mark.skipif(PROGRAM is None, reason=_NEEDS)


class LiveEtcd(Child):
    """Serves while its context is entered; what it keeps stays when it is started again."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        certificate: Path | None = None,
        key: Path | None = None,
        file: Path | None = None,
    ) -> None:
        """With a certificate its clients come by TLS; a file has all settings instead.

        A test without the program is skipped here.
        """
        if PROGRAM is None:
            pytest.skip(_NEEDS)
        home = scratch("etcd")
        client, peer = free_ports(2)
        self.endpoint = f"{host}:{client}"
        scheme = "http" if certificate is None else "https"
        peers = f"http://{host}:{peer}"
        options = {
            "data-dir": f"{home.name}/data",
            "listen-client-urls": f"{scheme}://{self.endpoint}",
            "advertise-client-urls": f"{scheme}://{self.endpoint}",
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
        }
        if certificate is not None:
            options |= {"cert-file": str(certificate), "key-file": str(key)}
        if file is not None:
            options = {"config-file": str(file)}
        super().__init__(home, [PROGRAM, *(f"--{key}={value}" for key, value in options.items())])

    def _wait_ready(self) -> None:
        self.wait_for("ready to serve client requests")

    def restart(self) -> None:
        """Start it again where it was, after `stop` or `kill`."""
        self.__enter__()
