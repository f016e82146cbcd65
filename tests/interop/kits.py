"""The jars of Apache RocketMQ, fetched once into a cache outside the repository.

A *kit* is one folder of jars that together make a class path: a server with its admin tool, or a Java client.
Maven resolves it (`dependency:copy-dependencies`) into a temporary folder, which is then renamed to its place, so
that a kit in the cache is always whole. Of several that want a kit one fetches it, and the others wait.

The cache is `$SPARROWMQ_PEERS`, or `~/.cache/sparrowmq/peers`, or, where that cannot be written, a folder in the
system's temporary directory. `python -m tests.interop.kits` fetches everything ahead of time.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import unittest
from functools import cache
from pathlib import Path
from typing import Final

SERVER_VERSIONS: Final = ("4.9.7", "5.4.0")
CLIENT_VERSIONS: Final = ("4.9.8", "5.4.0")

_SERVER: Final = ("rocketmq-namesrv", "rocketmq-broker", "rocketmq-tools")
_ARTIFACTS: Final = {
    "server-4.9.7": _SERVER,
    "server-5.4.0": _SERVER,
    "client-4.9.8": ("rocketmq-client", "rocketmq-acl"),
    "client-5.4.0": ("rocketmq-client",),  # which signs by itself; rocketmq-acl ended with 5.3
}
_QUIETLY: Final = ("-q", "-B", "-Dstyle.color=never")
_FETCH_LIMIT_S: Final = 600


class PeerMissing(unittest.SkipTest):
    """A peer cannot run on this machine; a test that needs it skips with this text (pytest honours SkipTest)."""


@cache
def server_jars(version: str) -> Path:
    """The folder with name server, broker and admin tool of one release. Raises: PeerMissing."""
    return _kit(f"server-{version}", version)


@cache
def client_jars(version: str) -> Path:
    """The folder with the Java client and its ACL signing of one release. Raises: PeerMissing."""
    return _kit(f"client-{version}", version)


@cache
def java() -> str:
    """The `java` to run, from JAVA_HOME or PATH. Raises: PeerMissing."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    return _on_path("java")


def cache_folder() -> Path:
    """The folder that holds the kits, made when absent."""
    asked = os.environ.get("SPARROWMQ_PEERS")
    wanted = Path(asked) if asked else Path.home() / ".cache" / "sparrowmq" / "peers"
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        if os.access(wanted, os.W_OK):
            return wanted
    except OSError:
        pass
    fallback = Path(tempfile.gettempdir()) / f"sparrowmq-peers-{os.getuid()}"
    fallback.mkdir(parents=True, exist_ok=True)
    return fallback


def _kit(name: str, version: str) -> Path:
    if name not in _ARTIFACTS:
        raise ValueError(f"no kit {name}; there are {', '.join(_ARTIFACTS)}")
    java()
    kit = cache_folder() / name
    if not kit.is_dir():
        # Two Mavens at once would disturb each other in the repository that they share.
        with (kit.parent / ".fetching").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kit.is_dir():
                _fetch(kit, version)
    return kit


def _fetch(kit: Path, version: str) -> None:
    maven = _on_path("mvn")
    with tempfile.TemporaryDirectory(dir=kit.parent, prefix=f".{kit.name}-") as scratch:
        pom, jars = Path(scratch) / "pom.xml", Path(scratch) / "jars"
        pom.write_text(_pom(_ARTIFACTS[kit.name], version))
        command = [
            maven,
            *_QUIETLY,
            "-f",
            str(pom),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={jars}",
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise PeerMissing(f"Maven did not resolve {kit.name} within {_FETCH_LIMIT_S} s") from None
        if done.returncode or not jars.is_dir():
            raise PeerMissing(f"Maven cannot resolve {kit.name}: {_first_error(done.stdout + done.stderr)}")
        try:
            jars.rename(kit)
        except OSError:  # another run was quicker; its kit is as good as ours
            if not kit.is_dir():
                raise


def _pom(artifacts: tuple[str, ...], version: str) -> str:
    wanted = "".join(
        f"<dependency><groupId>org.apache.rocketmq</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for artifact in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>sparrowmq</groupId><artifactId>peers</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{wanted}</dependencies></project>"
    )


def _on_path(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise PeerMissing(f"no {program} on PATH; install it to run the tests against Apache RocketMQ")
    return found


def _first_error(text: str) -> str:
    errors = [line for line in text.splitlines() if "ERROR" in line]
    return (errors or text.splitlines() or ["no output"])[0][:300]


if __name__ == "__main__":
    for version in SERVER_VERSIONS:
        print(server_jars(version))
    for version in CLIENT_VERSIONS:
        print(client_jars(version))
