"""Bad command lines, settings, files and addresses: each ends with a status and a sentence that says what to do.

The first table needs no server, so it calls the command in this process; the second starts real ones.
"""

import os
import socket
import subprocess
import sys

import pytest
from click.testing import CliRunner

from sparrowmq.cli.main import main
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import StoreSettings

# Command line, content of broker.conf if it has one, and words of the answer.
LINES = [
    ("brokr", None, "there is no command 'brokr'; did you mean broker?"),
    ("broker --bogus", None, "No such option '--bogus'"),
    ("broker extra", None, "No such command 'extra'"),
    ("broker -c", None, "Option '-c' requires an argument"),
    (
        "broker -c {tmp}/missing.conf",
        None,
        "missing.conf (No such file or directory); check its path",
    ),
    ("broker -c {tmp}", None, "(Is a directory); check its path"),
    ("broker --set listenPort", None, "'listenPort' is not key=value"),
    (
        "broker --set listenPort=70000",
        None,
        "the command line: listenPort = '70000' is wrong; it must be a whole",
    ),
    ("broker -n nowhere", None, "namesrvAddr = 'nowhere' is wrong; it must be host:port"),
    ("broker -n a:1,b:2", None, "or several with ; between"),
    ("broker -c {conf}", b"listenPort=abc\n", "{conf}: listenPort = 'abc' is wrong"),
    (
        "broker -c {conf}",
        b"listenPort=x\nfileReservedTime=0\n",
        "fileReservedTime = '0' is wrong; it must be a number of h",
    ),
    ("broker -c {conf}", b"flushDiskType=SOMETIMES\n", "must be SYNC_FLUSH or ASYNC_FLUSH"),
    ("broker -c {conf}", b"autoCreateTopicEnable=maybe\n", "must be true or false"),
    ("broker -c {conf}", b"mapedFileSizeCommitLog=1 apple\n", "mapedFileSizeCommitLog = '1 apple' is wrong"),
    ("broker -c {conf}", b"mappedFileSizeCommitLog=65537\n", "a multiple of 512"),
    ("broker -c {conf}", b"messageDelayLevel=1s later\n", "must be delays with blanks between"),
    ("broker -c {conf}", b"brokerName=a/b\n", "must be letters, digits"),
    ("broker -c {conf}", b"deleteWhen=noon\n", "must be hours of the day"),
    ("broker -c {conf}", b"brokerRole=SLAVE\n", "brokerId = 0 is a master's; give a slave another one"),
    ("broker -c {conf}", b"brokerId=1\n", "brokerId = 1 is a slave's: set brokerRole=SLAVE"),
    (
        "broker -c {conf}",
        b"aclEnable=true\n",
        "nothing says where the accounts are: set ROCKETMQ_HOME",
    ),
    (
        "broker -c {conf}",
        b"tls.server.mode=enforcing\ntls.test.mode.enable=false\n",
        "tls.server.mode=enforcing needs tls.server.certPath and tls.server.keyPath",
    ),
    (
        "namesrv -c {conf}",
        b"tls.server.certPath=/nowhere/c.pem\n",
        "tls.server.certPath = /nowhere/c.pem cannot be read (No such file or directory)",
    ),
    ("namesrv -c {conf}", b"tls.server.certpath=c\n", "no setting of TLS is called so"),
    ("namesrv --set tls.config.file=/nowhere", None, "cannot read the settings file /nowhere"),
    (
        "broker -c {conf}",
        b"enableDLegerCommitLog=true\n",
        "not supported yet: set enableControllerMode=true and etcdEndpoints",
    ),
    ("broker -c {conf}", b"brokerName=\xe9\n", "brokerName = 'é' is wrong; it must be letters, digits"),
    ("broker -c {conf}", b"brokerName=\\u12\n", "is not a settings file"),
    ("namesrv --set kvConfigPath=", None, "kvConfigPath = '' is wrong; it must be a path"),
    ("namesrv --set orderMessageEnable=2", None, "must be true or false"),
    ("store check", None, "Missing argument 'PATH'"),
]


@pytest.mark.parametrize(("line", "content", "words"), LINES)
def test_a_bad_command_line_or_file_is_told_with_status_2(line, content, words, tmp_path):
    conf = tmp_path / "broker.conf"
    conf.write_bytes(content or b"")
    places = {"tmp": tmp_path, "conf": conf}
    result = CliRunner().invoke(main, line.format(**places).split(), prog_name="sparrowmq")
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit)
    assert words.format(**places) in result.output


def test_all_wrong_values_are_told_at_once():
    words = ["--set", "listenPort=x", "--set", "brokerId=x", "--set", "aclEnable=perhaps"]
    output = CliRunner().invoke(main, ["broker", *words], prog_name="sparrowmq").output
    assert len(output.splitlines()) == 3
    assert all(f"{key} = " in output for key in ("listenPort", "brokerId", "aclEnable"))


SMALL = {"listenPort": 0, "mappedFileSizeCommitLog": 1 << 20, "maxHashSlotNum": 1000, "maxIndexNum": 4000}


def run(role, settings):
    """Run a server that must not start; returns its status and what it said on stderr."""
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RMQ_", "NAMESRV"))}
    ended = subprocess.run(
        [sys.executable, "-m", "sparrowmq", role, *words],
        capture_output=True,
        text=True,
        timeout=30,
        env=environment,
    )
    assert ended.stdout == "" and "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode, ended.stderr


@pytest.fixture
def store(tmp_path):
    """A store that was closed properly."""
    settings = StoreSettings(tmp_path / "store", commit_log_file_size=1 << 20, index_slots=1000, index_entries=4000)
    opened = MessageStore.open(settings)
    for number in range(100):
        opened.append(Entry("Orders", 0, b"x" * 1000, Properties(f"KEYS\x01k{number}"), 1, bytes(8)))
    opened.publish()
    opened.close()
    return settings


@pytest.fixture
def taken_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_a_broker_on_a_taken_port(store, taken_port):
    status, said = run("broker", SMALL | {"storePathRootDir": store.path, "listenPort": taken_port})
    assert status == 2
    assert f"cannot listen on 127.0.0.1:{taken_port} (Address already in use); stop the program that uses" in said


def test_a_name_server_on_a_taken_port(tmp_path, taken_port):
    status, said = run("namesrv", {"listenPort": taken_port, "kvConfigPath": tmp_path / "kv.json"})
    assert status == 2 and f"cannot listen on 127.0.0.1:{taken_port}" in said


@pytest.mark.parametrize("address", ["203.0.113.7", "no.such.host.invalid"])
def test_an_address_that_is_not_of_this_machine(store, address):
    settings = SMALL | {"storePathRootDir": store.path, "bindAddress": address, "insecure": "true"}
    status, said = run("broker", settings)
    assert status == 2 and f"cannot listen on {address}:0" in said


def test_a_public_broker_without_access_control(store):
    status, said = run("broker", SMALL | {"storePathRootDir": store.path, "brokerIP1": "10.0.0.1"})
    assert status == 2 and "listening on 0.0.0.0 would let everybody" in said and "--insecure" in said


def test_a_public_name_server_without_access_control(tmp_path):
    settings = {"listenPort": 0, "bindAddress": "0.0.0.0", "kvConfigPath": tmp_path / "kv.json"}
    status, said = run("namesrv", settings)
    assert status == 2 and "--insecure" in said


def test_a_host_name_that_nobody_knows(store):
    settings = SMALL | {
        "storePathRootDir": store.path,
        "brokerIP1": "no.such.host.invalid",
        "bindAddress": "127.0.0.1",
    }
    status, said = run("broker", settings)
    assert status == 2 and "brokerIP1 = 'no.such.host.invalid' has no address" in said


def test_a_store_that_another_broker_uses(store):
    opened = MessageStore.open(store)
    status, said = run("broker", SMALL | {"storePathRootDir": store.path})
    opened.close()
    assert status == 1 and f"the store {store.path} is in use by another broker (process " in said


def test_a_store_whose_folder_is_a_file(tmp_path):
    (tmp_path / "store").write_text("")
    status, said = run("broker", SMALL | {"storePathRootDir": tmp_path / "store"})
    assert status == 1 and str(tmp_path / "store") in said


def test_a_store_whose_files_have_another_size(store):
    status, said = run("broker", SMALL | {"storePathRootDir": store.path, "mappedFileSizeCommitLog": 2 << 20})
    assert status == 1 and "00000000000000000000" in said


def test_a_store_that_is_damaged(store):
    log = next((store.path / "commitlog").iterdir())
    content = bytearray(log.read_bytes())
    content[2000] ^= 0xFF
    log.write_bytes(content)
    (store.path / "abort").touch()
    status, said = run("broker", SMALL | {"storePathRootDir": store.path})
    assert status == 1 and "is damaged at offset" in said


@pytest.mark.parametrize("name", ["topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"])
def test_state_of_the_broker_that_cannot_be_read(store, name):
    (store.path / "config").mkdir()
    (store.path / "config" / name).write_text('{"dataVersion":')
    status, said = run("broker", SMALL | {"storePathRootDir": store.path})
    assert status == 1 and f"{name} cannot be read" in said and "restore it from a backup, or delete" in said


def test_values_of_the_name_server_that_cannot_be_read(tmp_path):
    (tmp_path / "kv.json").write_text("{")
    status, said = run("namesrv", {"listenPort": 0, "kvConfigPath": tmp_path / "kv.json"})
    assert status == 1 and "kv.json cannot be read" in said and "restore it from a backup" in said
