"""The closed cluster of security.md, from an empty folder: its commands run, and no port answers a stranger.

The test finds all ports of all servers in /proc, so a new port is part of it by itself.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.cli.secure import CertificateFiles, make_authority, sign
from sparrowmq.protocol.requests import namesrv_headers as ask
from sparrowmq.protocol.requests.admin_headers import GetAllTopicConfig, GetBrokerConfig
from sparrowmq.protocol.wire.connection import Connection
from sparrowmq.protocol.wire.header import Request
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.worker import connect as connect_for_spark
from tests.interop.apache import free_ports
from tests.place import Place
from tests.test_operate_pages import boxes, sent_by

pytestmark = pytest.mark.slow

LIMIT_S = 20.0
ALERT = b"\x15"  # the first byte of a TLS record that only says why the connection ends
LISTENS = "0A"
SERVERS = 8


def frame(request: Request[Any]) -> bytes:
    return bytes(Connection[None]().request(request, b"", None)[1])


WORDS = {
    "eight zero bytes": bytes(8),
    "the greeting of a slave": b"SMQ-HA-1" + bytes(32),
    "the greeting of a member": b"SMQ-HA-M" + bytes(16),
    "HTTP": b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
    "a question for a route": frame(ask.GetRoute("orders")),
    "a registration": frame(ask.RegisterBroker("broker-a", "6.6.6.6:10911", "DefaultCluster", "", 0)),
    "a question for topics": frame(GetAllTopicConfig()),
    "a question for settings": frame(GetBrokerConfig()),
    "no frame": b"\xff" * 64,
    "TLS that is none": b"\x16\x03\x01\x00\x05hello",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The page's cluster, with its steps done in their order, on free ports."""
    with ExitStack() as stack:
        place = Place(tmp_path_factory.mktemp("closed"), stack, "server")
        for name in ("RMQ_NAMESRV_listenPort", "RMQ_NAMESRV_kvConfigPath"):
            del place._environment[name]
        small = {"mappedFileSizeCommitLog": "1m", "maxHashSlotNum": "5000", "maxIndexNum": "20000"}
        enough = {"diskMaxUsedSpaceRatio": "95"}
        place._environment |= {f"RMQ_BROKER_{key}": value for key, value in (small | enough).items()}
        names, brokers = own_ports()
        place.replaced = {
            "--client orders": f"--namesrv-port {names} --broker-port {brokers} --client orders",
            "127.0.0.1:9876": f"127.0.0.1:{names}",
        }
        place.namesrv = f"127.0.0.1:{names}"
        make, look, send, *_ = boxes("security.md", "sh")
        place.shell(make)
        place.start(boxes("security.md", "start")[0])
        said = place.shell(look)
        assert all(f"broker-{letter}" in said for letter in "abc") and said.count("slave") == 3, said
        place.shell(send)
        yield place


def own_ports() -> tuple[int, int]:
    """The first ports of name servers and of brokers; those that follow are free too."""
    while True:
        [first] = free_ports(1)
        wanted = [first, first + 10, *(first + 20 + 10 * n + side for n in range(6) for side in (0, 1))]
        with ExitStack() as taken, suppress(OSError, OverflowError):
            for port in wanted:
                taken.enter_context(socket.create_server(("127.0.0.1", port)))
            return first, first + 20


def ports_of(place: Place) -> set[tuple[str, int]]:
    """All addresses where the servers of the page listen."""
    sockets = set()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or not is_below(process, place.folder):
            continue
        for link in (process / "fd").iterdir():
            with suppress(OSError):
                sockets.add(str(link.readlink()))
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *_, inode = line.split()[:10]
        if state == LISTENS and f"socket:[{inode}]" in sockets:
            address, port = local.split(":")
            found.add((socket.inet_ntoa(bytes.fromhex(address)[::-1]), int(port, 16)))
    return found


def is_below(process: Path, folder: Path) -> bool:
    """Whether a process runs in a folder."""
    try:
        return (process / "cwd").readlink() == folder
    except OSError:  # it has ended, or is another user's
        return False


def answer(address: tuple[str, int], words: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """What a server says to a stranger, up to the end of the connection."""
    said = b""
    with ExitStack() as stack, suppress(ConnectionError, ssl.SSLError):
        plain = stack.enter_context(socket.create_connection(address, LIMIT_S))
        line = plain if context is None else stack.enter_context(context.wrap_socket(plain))
        line.sendall(words)
        while piece := line.recv(65536):
            said += piece
    return said


def test_no_port_says_a_byte_to_a_stranger(place: Place, tmp_path: Path) -> None:
    theirs, pair = (CertificateFiles(tmp_path / f"{name}.pem", tmp_path / f"{name}.key") for name in ("ca", "pair"))
    make_authority(theirs, "SparrowMQ ca", 10)
    sign(pair, "administrator", (), theirs, 10)
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    forged = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    forged.check_hostname, forged.verify_mode = False, ssl.CERT_NONE
    forged.load_cert_chain(pair.certificate, pair.key)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    ports = ports_of(place)
    assert len(ports) == SERVERS + 3, "each server has a port, and each master one for slaves"
    for address in ports:
        for name, words in WORDS.items():
            said = answer(address, words)
            assert not said or (words[:1] == b"\x16" and said[:1] == ALERT and len(said) == 7), (
                address,
                name,
            )
            for context in (trusting, forged, old):
                assert answer(address, words, context) == b"", (address, name)


def test_python_sends_with_its_certificate(place: Place) -> None:
    piece = "from pathlib import Path\n    " + boxes("security.md", "python")[0]
    assert sent_by(place, piece) == "OK\n"


def test_the_command_line_needs_the_certificate(place: Place) -> None:
    listing = boxes("security.md", "sh")[4]
    bare = "unset NAMESRV_ADDR SPARROWMQ_TLS_CONFIG ROCKETMQ_ACCESS_KEY ROCKETMQ_SECRET_KEY\n"
    assert "orders" in place.shell(bare + listing)
    with pytest.raises(AssertionError, match="encrypted connections only"):
        place.shell(bare + place.text(listing).partition(" --tls-config")[0])


def test_spark_takes_the_options_of_the_page(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.folder)
    [shown] = re.findall(r"closed = (\{.*?\n\})", boxes("security.md", "python")[1], re.DOTALL)
    options = dict(re.findall(r'"(.*?)": "(.*?)"', place.text(shown)))
    with connect_for_spark(parse(SourceOptions, options | {"topic": "orders"})) as network:
        assert network.route_for_sending("orders").writable


def test_the_console_shows_the_cluster(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        console = Place(place.folder, stack, "console")
        console.replaced = place.replaced
        start = boxes("security.md", "start")[1].strip()
        assert "user admin" in console.start(f"{start} --port 0", until="the console is at ")


def test_machines_get_files_with_their_places(place: Place) -> None:
    place.shell(boxes("security.md", "sh")[3])
    conf = (place.folder / "machines" / "broker-b" / "broker.conf").read_text()
    assert "brokerIP1=10.0.0.12\n" in conf and "aclFile=/etc/sparrowmq/broker-b/accounts.yml\n" in conf
