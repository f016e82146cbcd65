"""Certificates for tests of TLS, made by the program openssl: authorities, and what they sign."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparrowmq.remoting.tls.tls_settings import ClientAuth, TlsMode

_SIGNS = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")  # Python 3.13 trusts no authority without it
_NEW = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in PEM."""

    certificate: Path
    key: Path


def authority(folder: Path, name: str = "authority") -> Pair:
    """One that vouches for others."""
    pair = _pair(folder, name)
    _openssl("req", "-x509", *_NEW, *_SIGNS, "-subj", f"/CN={name}", "-days", "3650", *_out(pair))
    return pair


def signed(folder: Path, name: str, by: Pair, *, host: str = "IP:127.0.0.1", days: int = 3650) -> Pair:
    """One that `by` vouches for, for an address; with days=-1 it expired yesterday."""
    pair, request = _pair(folder, name), folder / f"{name}.csr"
    extensions = folder / f"{name}.ext"
    extensions.write_text(f"subjectAltName={host}\n")
    _openssl("req", "-new", *_NEW, "-subj", f"/CN={name}", "-keyout", pair.key, "-out", request)
    _openssl(
        *("x509", "-req", "-in", request, "-CA", by.certificate, "-CAkey", by.key, "-CAcreateserial"),
        *("-days", str(days), "-extfile", extensions, "-out", pair.certificate),
    )
    return pair


def settings_of(ours: Pair, own: Pair) -> dict[str, Any]:
    """The settings of a server that shows `own`, and lets in who shows a certificate of `ours`; also at its peers."""
    return {
        "tls_mode": TlsMode.ENFORCING,
        "certificate": own.certificate,
        "key": own.key,
        "trust": ours.certificate,
        "client_auth": ClientAuth.REQUIRE,
        "client_certificate": own.certificate,
        "client_key": own.key,
        "client_trust": ours.certificate,
    }


def encrypted(pair: Pair, password: str) -> Pair:
    """The same, its key under a password."""
    key = pair.key.with_name(f"{pair.key.name}.encrypted")
    _openssl("pkcs8", "-topk8", "-in", pair.key, "-out", key, "-passout", f"pass:{password}")
    return Pair(pair.certificate, key)


def _pair(folder: Path, name: str) -> Pair:
    return Pair(folder / f"{name}.pem", folder / f"{name}.key")


def _out(pair: Pair) -> tuple[object, ...]:
    return ("-keyout", pair.key, "-out", pair.certificate)


def _openssl(*args: object) -> None:
    done = subprocess.run(["openssl", *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
