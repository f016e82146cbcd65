"""The jars of Apache RocketMQ and the puppets of Go, Node and Rust, made once in a cache outside the repository.

A *kit* is one folder of jars that together make a class path: a server with its admin tool, a Java client, or samples.
Apicurio's schema registry is one, too.
Maven resolves it (`dependency:copy-dependencies`) into a temporary folder, which is then renamed to its place, so
that a kit in the cache is always whole. Of several that want a kit one fetches it, and the others wait.
The puppets of Go and Rust are programs that `go build` and `cargo build` make of our source, the Node puppet our source
beside what `npm ci` installs; go.sum and package-lock.json pin them by hash. Their kits are named after the source: an
edit makes another.
Benchmarks have kits too: Kafka's broker, a NATS server, and an environment with other brokers' Python clients.

The cache is `$SPARROWMQ_PEERS`, or `~/.cache/sparrowmq/peers`, or, where that cannot be written, a folder in the
system's temporary directory. `python -m tests.interop.kits` fetches everything ahead of time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

SERVER_VERSIONS: Final = ("4.9.7", "5.4.0")
CLIENT_VERSIONS: Final = ("4.9.8", "5.4.0")
SAMPLE_VERSIONS: Final = ("4.3.2", "4.7.0", "5.5.0")
# 5.0.7 is the one of Spring's starter; the last has recalls and priorities.
FIVE_JAVA_VERSIONS: Final = ("5.0.5", "5.0.7", "5.1.0", "5.2.0")

_SERVER: Final = ("rocketmq-namesrv", "rocketmq-broker", "rocketmq-tools")
_ARTIFACTS: Final = {
    "server-4.9.7": _SERVER,
    "server-5.4.0": _SERVER,
    "proxy-5.4.0": (*_SERVER, "rocketmq-proxy"),
    "client-4.9.8": ("rocketmq-client", "rocketmq-acl"),
    "client-5.4.0": ("rocketmq-client",),  # which signs by itself; rocketmq-acl ended with 5.3
    # Of 4.7.1 to 5.4.0 there are none on Maven Central.
    "samples-4.3.2": ("rocketmq-example",),
    "samples-4.7.0": ("rocketmq-example",),
    "samples-5.5.0": ("rocketmq-example",),
    **{f"five-java-{version}": ("rocketmq-client-java",) for version in FIVE_JAVA_VERSIONS},
    "kafka-3.9.1": ("org.apache.kafka:kafka_2.13:3.9.1",),
    # Of the second there is none that is newer; `*` leaves out what they name themselves, most of which Spark has.
    "spark-kafka-4.2.0": (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0:*",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0:*",
        "org.apache.kafka:kafka-clients:3.9.1:*",
        "org.apache.commons:commons-pool2:2.12.1:*",
    ),
    # Each with what it says is not in Spark; ADR 0022 says why they need different Sparks.
    "delta-4.4.0": (
        "io.delta:delta-spark_4.2_2.13:4.4.0:*",
        "io.delta:delta-storage:4.4.0:*",
    ),
    # SQLite is the catalog that our own Iceberg tables are in.
    "iceberg-1.12.0": (
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0:*",
        "org.xerial:sqlite-jdbc:3.53.4.0:*",
    ),
}
_QUIETLY: Final = ("-q", "-B", "-Dstyle.color=never")
_FETCH_LIMIT_S: Final = 600
_HERE: Final = Path(__file__).parent

REGISTRY_VERSION: Final = "3.3.3"
NATS_VERSION: Final = "2.15.2"
_NATS_SERVER: Final = "github.com/nats-io/nats-server/v2"
_FIVE_CLIENTS: Final = "https://github.com/apache/rocketmq-clients"
FIVE_COMMIT: Final = "da8271b572b41b627bcbbdfb5b3310c0c5e4736b"
PEERS_LOCK: Final = _HERE.parents[1] / "requirements" / "peers.txt"
FIVE_LOCK: Final = _HERE.parents[1] / "requirements" / "five.txt"
_OLDEST_FIVE_PYTHON: Final = (
    "rocketmq-python-client==5.0.1 --hash=sha256:a13db4858e3bf5fdaef9e035d369797e496ad732adbc53ca3e3adfc34bca7546"
)


class PeerMissing(unittest.SkipTest):
    """A peer cannot run on this machine; a test that needs it skips with this text (pytest honours SkipTest)."""


@cache
def server_jars(version: str) -> Path:
    """The folder with name server, broker and admin tool of one release. Raises: PeerMissing."""
    return _kit(f"server-{version}", version)


@cache
def proxy_jars(version: str) -> Path:
    """The folder with the gRPC proxy of one release, and the broker that it can have inside. Raises: PeerMissing."""
    return _kit(f"proxy-{version}", version)


@cache
def client_jars(version: str) -> Path:
    """The folder with the Java client and its ACL signing of one release. Raises: PeerMissing."""
    return _kit(f"client-{version}", version)


@cache
def sample_jars(version: str) -> Path:
    """The folder with Apache's samples, `org.apache.rocketmq.example`, and the client of their release.

    Raises: PeerMissing.
    """
    return _kit(f"samples-{version}", version)


@cache
def kafka_jars() -> Path:
    """The folder with a Kafka broker, for benchmarks. Raises: PeerMissing."""
    return _kit("kafka-3.9.1", "")


@cache
def nats_server() -> Path:
    """The program of a NATS server, for benchmarks; `go install` builds it. Raises: PeerMissing."""
    go = _on_path("go")

    def install(kit: Path) -> None:
        wanted = f"{_NATS_SERVER}@v{NATS_VERSION}"
        _run([go, "install", wanted], kit, "Go does not build the NATS server", GOBIN=str(kit))

    return _whole(f"nats-server-{NATS_VERSION}", install) / "nats-server"


@cache
def redis_server() -> Path:
    """The program of a Redis server, for benchmarks. Raises: PeerMissing."""
    return Path(_on_path("redis-server"))


@cache
def python_peers() -> Path:
    """The Python of an environment with other brokers' clients, for benchmarks: those that PEERS_LOCK has.

    Raises: PeerMissing.
    """
    return _python_with(PEERS_LOCK, "python-peers")


@cache
def five_java_jars(version: str = FIVE_JAVA_VERSIONS[-1]) -> Path:
    """The folder with Apache's own Java client of RocketMQ 5. Raises: PeerMissing."""
    return _kit(f"five-java-{version}", version)


@cache
def five_examples() -> Path:
    """The folder with the examples of Apache's Python client of RocketMQ 5. Raises: PeerMissing."""
    git = _on_path("git")

    def fetch(kit: Path) -> None:
        complaint = "needs a network: git cannot fetch the examples"
        _run([git, "init", "-q"], kit, complaint)
        _run([git, "fetch", "-q", "--depth", "1", _FIVE_CLIENTS, FIVE_COMMIT], kit, complaint)
        _run([git, "checkout", "-q", FIVE_COMMIT, "--", "python/example"], kit, complaint)
        shutil.rmtree(kit / ".git")

    return _whole(f"five-examples-{FIVE_COMMIT[:12]}", fetch) / "python" / "example"


@cache
def five_python() -> Path:
    """The Python of an environment with Apache's own client of RocketMQ 5. Raises: PeerMissing."""
    return _python_with(FIVE_LOCK, "five-python")


@cache
def oldest_five_python() -> Path:
    """As `five_python`, with the oldest release of the client. Raises: PeerMissing."""
    return _python_with(FIVE_LOCK, "oldest-five-python", _OLDEST_FIVE_PYTHON)


def _python_with(lock: Path, name: str, other: str = "") -> Path:
    """The Python of an environment with the packages of a lock, one in an `other` release. Raises: PeerMissing."""

    def install(kit: Path) -> None:
        _run([sys.executable, "-m", "venv", str(kit)], kit, "Python does not make an environment")
        pip = [str(kit / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--require-hashes", "-r", str(lock)], kit, f"pip does not install requirements/{lock.name}")
        if other:
            (kit / "other.txt").write_text(other)
            words = ["--no-deps", "--require-hashes", "-r", "other.txt"]
            _run([*pip, *words], kit, f"pip does not install {other}")

    digest = hashlib.sha256(sys.version.encode() + lock.read_bytes() + other.encode())
    return _whole(f"{name}-{digest.hexdigest()[:12]}", install) / "bin" / "python"


@cache
def spark_kafka_jars() -> Path:
    """The folder with Spark's own source and sink for Kafka. Raises: PeerMissing."""
    return _kit("spark-kafka-4.2.0", "")


@cache
def delta_jars() -> Path:
    """The folder with Delta's source and sink for Spark 4.2. Raises: PeerMissing."""
    return _kit("delta-4.4.0", "")


@cache
def iceberg_jars() -> Path:
    """The folder with Iceberg's source and sink for Spark 4.1. Raises: PeerMissing."""
    return _kit("iceberg-1.12.0", "")


@cache
def schema_registry() -> Path:
    """The folder of Apicurio's registry, which has Confluent's API. Raises: PeerMissing."""
    maven = _on_path("mvn")

    def install(kit: Path) -> None:
        artifact = f"io.apicurio:apicurio-registry-app:{REGISTRY_VERSION}:tar.gz:all"
        goal = ["dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={kit}"]
        _run([maven, *_QUIETLY, *goal], kit, "Maven cannot resolve Apicurio's registry")
        (archive,) = kit.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(kit, filter="data")
        archive.unlink()

    return _whole(f"apicurio-{REGISTRY_VERSION}", install)


@cache
def java() -> str:
    """The `java` of a JDK, from JAVA_HOME or PATH: it also compiles the programs here. Raises: PeerMissing."""
    at_home = Path(os.environ.get("JAVA_HOME", "")) / "bin" / "java"
    found = at_home if os.environ.get("JAVA_HOME") and at_home.exists() else Path(_on_path("java"))
    if not (found.resolve().parent / "javac").exists():
        raise PeerMissing(f"no javac beside {found}; install a JDK to run what needs it")
    return str(found)


@cache
def go_puppet(folder: str = "go") -> Path:
    """The program made of a folder here; five/go has the client of RocketMQ 5. Raises: PeerMissing."""
    source = _HERE / folder
    go = _on_path("go")  # which need not optimize: that halves the build

    def build(kit: Path) -> None:
        _run(
            [go, "build", "-gcflags=all=-N -l", "-ldflags=-s -w", "-o", str(kit / "puppet"), "."],
            source,
            "Go does not build its puppet",
            CGO_ENABLED="0",
        )

    return _made(source, build) / "puppet"


@cache
def rust_puppet() -> Path:
    """The program made of five/rust. Raises: PeerMissing, also where crates cannot be fetched."""
    source = _HERE / "five" / "rust"
    cargo = shutil.which("cargo")
    if cargo is None:
        raise PeerMissing("rust cannot: no cargo on PATH; install it to run Apache's Rust client")

    def build(kit: Path) -> None:
        with tempfile.TemporaryDirectory() as target:
            work = Path(shutil.copytree(source, Path(target) / "source"))  # cargo writes a lock file beside the source
            _run(
                [cargo, "build", "--quiet", "--target-dir", target],
                work,
                "rust cannot: cargo does not build its puppet",
            )
            shutil.copy(Path(target) / "debug" / "puppet", kit)

    return _made(source, build) / "puppet"


@cache
def go_sources() -> Path:
    """The folder of the Go client's sources. Raises: PeerMissing."""
    go_puppet()
    asked = [_on_path("go"), "list", "-m", "-f", "{{.Dir}}", "github.com/apache/rocketmq-client-go/v2"]
    done = subprocess.run(asked, cwd=_HERE / "go", capture_output=True, text=True, timeout=_FETCH_LIMIT_S)
    if done.returncode or not done.stdout.strip():
        raise PeerMissing(f"Go does not have its client's sources: {_first_error(done.stderr)}")
    return Path(done.stdout.strip())


@cache
def node_puppet(folder: str = "node") -> list[str]:
    """The command that runs the puppet of a folder; five/node has the client of RocketMQ 5. Raises: PeerMissing."""
    source = _HERE / folder
    node, npm = _on_path("node"), _on_path("npm")

    def install(kit: Path) -> None:
        for file in source.iterdir():
            shutil.copy(file, kit)
        _run(
            [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            kit,
            "npm does not install the puppet's client",
        )

    return [node, str(_made(source, install) / "puppet.js")]


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
    return _whole(name, lambda kit: _fetch(kit, name, version))


def _made(source: Path, make: Callable[[Path], None]) -> Path:
    """The kit made of a folder of ours, named after what is in it."""
    digest = hashlib.sha256()
    for file in sorted(source.iterdir()):
        digest.update(file.read_bytes())
    return _whole(f"{source.name}-{digest.hexdigest()[:12]}", make)


def _whole(name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` of the cache, which `make` fills when it is not there."""
    kit = cache_folder() / name
    if kit.is_dir():
        return kit
    # Two Mavens at once would disturb each other in the repository that they share.
    with (kit.parent / ".fetching").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kit.is_dir():
            with tempfile.TemporaryDirectory(dir=kit.parent, prefix=f".{name}-") as scratch:
                filling = Path(scratch) / "kit"
                filling.mkdir()
                make(filling)
                filling.rename(kit)
    return kit


def _fetch(kit: Path, name: str, version: str) -> None:
    maven = _on_path("mvn")
    pom = kit.parent / "pom.xml"
    pom.write_text(_pom(_ARTIFACTS[name], version))
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={kit}"]
    _run([maven, *_QUIETLY, "-f", str(pom), *goal], kit.parent, f"Maven cannot resolve {name}")


def _run(command: list[str], folder: Path, complaint: str, **environment: str) -> None:
    around = os.environ | environment
    try:
        done = subprocess.run(command, cwd=folder, env=around, capture_output=True, text=True, timeout=_FETCH_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise PeerMissing(f"{complaint} within {_FETCH_LIMIT_S} s") from None
    if done.returncode:
        raise PeerMissing(f"{complaint}: {_first_error(done.stdout + done.stderr)}")


def _pom(artifacts: tuple[str, ...], version: str) -> str:
    wanted = "".join(_dependency(artifact, version) for artifact in artifacts)
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>sparrowmq</groupId><artifactId>peers</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{wanted}</dependencies></project>"
    )


def _dependency(artifact: str, version: str) -> str:
    """Of Apache RocketMQ, or one that says its group and version itself; `:*` at the end: without its dependencies."""
    if ":" not in artifact:
        artifact = f"org.apache.rocketmq:{artifact}:{version}"
    group, name, version, *alone = artifact.split(":")
    every = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version>{every if alone else ''}</dependency>"
    )


def _on_path(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise PeerMissing(f"no {program} on PATH; install it to run what needs it")
    return found


def _first_error(text: str) -> str:
    errors = [line for line in text.splitlines() if "ERR" in line]
    return (errors or text.splitlines() or ["no output"])[0][:300]


if __name__ == "__main__":
    for version in SERVER_VERSIONS:
        print(server_jars(version))
    print(proxy_jars("5.4.0"))
    for version in CLIENT_VERSIONS:
        print(client_jars(version))
    for version in SAMPLE_VERSIONS:
        print(sample_jars(version))
    print(delta_jars())
    print(iceberg_jars())
    print(schema_registry())
    print(go_puppet())
    print(node_puppet()[1])
    print(five_python())
    print(five_java_jars())
    print(go_puppet("five/go"))
    print(node_puppet("five/node")[1])
    print(rust_puppet())
