import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests.interop.apache import free_ports
from tests.interop.wire import PULL, SEND, Wire, pull_fields, send_fields

CLUSTER, BROKER_CONFIG, CREATE_TOPIC, UPDATE_CONFIG = 106, 26, 17, 25

SEND_FIELDS, PULL_FIELDS = send_fields("Orders"), pull_fields("Orders")

TOPIC = {
    "topic": "Orders",
    "defaultTopic": "TBW102",
    "readQueueNums": 4,
    "writeQueueNums": 4,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "order": "false",
}


def brokers_at(namesrv):
    with Wire(namesrv.port) as wire:
        return json.loads(wire.ask(CLUSTER).body)["brokerAddrTable"]


@pytest.mark.covers("S-ADM-03")
@pytest.mark.covers("S-PORT-03")
def test_the_ready_line_is_apaches_and_by_then_the_broker_is_registered(start, namesrv, broker_args):
    broker = start(*broker_args, "-n", namesrv.address).ready()
    assert namesrv.line.startswith("The Name Server boot success. serializeType=JSON")
    said = f"The broker[broker-a, {broker.address}] boot success. serializeType=JSON and name server is "
    assert broker.line == f"{said}{namesrv.address}\n"
    assert brokers_at(namesrv)["broker-a"]["brokerAddrs"] == {"0": broker.address}


@pytest.mark.covers("S-ADM-03")
@pytest.mark.covers("S-PORT-03")
def test_apaches_scripts_start_the_servers_from_their_files(start, broker_args, tmp_path):
    def script(name):
        return "-c", f"from sparrowmq.cli.scripts import {name}; {name}()"

    named, told = tmp_path / "namesrv.conf", tmp_path / "broker.conf"
    named.write_text(f"listenPort=0\nkvConfigPath={tmp_path}/kv.json\n")
    told.write_text("\n".join([*broker_args[2::2], "brokerName=of-the-file"]))
    namesrv = start("-c", str(named), program=script("mqnamesrv")).ready()
    broker = start("-n", namesrv.address, "-c", str(told), program=script("mqbroker")).ready()
    assert brokers_at(namesrv)["of-the-file"]["brokerAddrs"] == {"0": broker.address}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_gracefully(start, namesrv, broker_args, tmp_path, number):
    broker = start(*broker_args, "-n", namesrv.address).ready()
    assert (tmp_path / "store" / "abort").exists()
    with Wire(broker.port) as wire:
        assert wire.ask(CREATE_TOPIC, TOPIC).code == 0
    status, log = broker.stop(number)
    assert status == 0 and "Traceback" not in log
    assert brokers_at(namesrv) == {} and not (tmp_path / "store" / "abort").exists()
    assert b'"Orders"' in (tmp_path / "store" / "config" / "topics.json").read_bytes()
    assert namesrv.stop(number)[0] == 0


def test_a_signal_while_it_starts_stops_it_too(start, broker_args, until):
    broker = start(*broker_args)
    until(lambda: psutil.Process(broker.process.pid).num_threads() > 0)
    broker.process.send_signal(signal.SIGTERM)
    assert broker.end()[0] in (0, -signal.SIGTERM)


@pytest.mark.slow
def test_a_broker_that_is_killed_starts_again(start, namesrv, broker_args):
    broker = start(*broker_args, "-n", namesrv.address).ready()
    broker.process.kill()
    broker.end()
    start(*broker_args, "-n", namesrv.address).ready()


def test_without_a_name_server_that_answers_it_starts_and_says_so(start, broker_args):
    broker = start(*broker_args, "-n", "127.0.0.1:1").ready()
    status, log = broker.stop()
    assert status == 0 and log.count("not registered at name server 127.0.0.1:1") == 1


def test_a_name_server_that_comes_later_is_found(start, broker_args, tmp_path, until):
    port = free_ports(1)[0]
    broker = start(*broker_args, "-n", f"127.0.0.1:{port}").ready()
    late = start("namesrv", "--set", f"listenPort={port}", "--set", f"kvConfigPath={tmp_path}/kv.json").ready()
    until(lambda: brokers_at(late).get("broker-a", {}).get("brokerAddrs") == {"0": broker.address})


def test_the_settings_of_a_file_hold_and_what_has_no_effect_is_told(start, namesrv, broker_args, tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("brokerClusterName=East\nsendMessageThreadPoolNums=16\nlistenprot=1\nfileReservedTime=48\n")
    broker = start(*broker_args, "-c", str(file), "-n", namesrv.address).ready()
    assert brokers_at(namesrv)["broker-a"]["cluster"] == "East"
    with Wire(broker.port) as wire:
        told = wire.ask(BROKER_CONFIG).body.decode().splitlines()
    assert {"brokerClusterName=East", "fileReservedTime=48", "sendMessageThreadPoolNums=16"} <= set(told)
    log = broker.stop()[1]
    assert f"{file}: sendMessageThreadPoolNums has no effect here: one event loop serves" in log
    assert f"{file}: the unknown key listenprot is ignored; did you mean listenPort?" in log


def printed(start, *args, env=None):
    process = start(*args, env=env).process
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    return dict(line.split("=", 1) for line in out.splitlines())


@pytest.mark.slow
def test_each_source_of_settings_overrules_those_before_it(start, tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("listenPort=1\nnamesrvAddr=file:1\nbrokerName=file\n")
    env = {"NAMESRV_ADDR": "env:1", "RMQ_BROKER_listenPort": "2"}
    assert printed(start, "broker", "-m", env=env)["namesrvAddr"] == "env:1"
    shown = printed(start, "broker", "-m", "-c", str(file), env=env)
    assert (shown["namesrvAddr"], shown["listenPort"], shown["brokerName"]) == ("file:1", "2", "file")
    shown = printed(start, "broker", "-m", "-c", str(file), "-n", "line:1", "--set", "listenPort=3", env=env)
    assert (shown["namesrvAddr"], shown["listenPort"]) == ("line:1", "3")


def test_all_settings_are_printed_or_only_the_important_ones(start):
    everything = printed(start, "broker", "-p")
    important = printed(start, "broker", "-m")
    assert important.items() <= everything.items() and len(important) < len(everything)
    assert everything["messageDelayLevel"].startswith("1s 5s") and "messageDelayLevel" not in important
    assert printed(start, "namesrv", "-p", "-n", "ignored:1")["listenPort"] == "9876"


@pytest.mark.parametrize("program", ["mqnamesrv", "mqbroker"])
def test_the_scripts_have_apaches_names(program):
    code = f"from sparrowmq.cli.scripts import {program}; {program}()"
    run = subprocess.run([sys.executable, "-c", code, "-h"], capture_output=True, text=True, timeout=20, check=True)
    assert "--config, --configFile FILE" in run.stdout and "--namesrvAddr ADDRESSES" in run.stdout


def test_others_cannot_read_the_messages(start, broker_args, tmp_path):
    start(*broker_args).ready()
    modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "store").rglob("*")}
    assert modes == {0}


def test_it_starts_quickly_and_stays_small(start, namesrv, broker_args):
    broker = start(*broker_args, "-n", namesrv.address).ready()
    servers = [psutil.Process(each.process.pid) for each in (namesrv, broker)]
    used = servers[1].cpu_times()  # which passes as fast however much runs beside it
    resident = [server.memory_info().rss / 1e6 for server in servers]
    # Alone it takes 0.4 s of a processor; 34 and 54 MB.
    assert used.user + used.system < 2 and resident[0] < 50 and resident[1] < 80


@pytest.mark.parametrize("server", ["namesrv", "broker"])
def test_a_server_loads_nothing_that_it_does_not_need(server):
    module = {"namesrv": "sparrowmq.namesrv.namesrv", "broker": "sparrowmq.broker.broker"}[server]
    code = f"import sparrowmq.cli.servers.serve, {module}, sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=True)
    assert not {"rich", "numpy", "javaproperties"} & set(run.stdout.split())


@pytest.mark.covers("S-PORT-04")
def test_the_store_and_the_log_lie_where_they_are_put(start, tmp_path):
    log, folder = tmp_path / "logs.txt", tmp_path / "data"
    settings = [
        "--set",
        "listenPort=0",
        "--set",
        f"storePathRootDir={folder}",
        "--set",
        "mappedFileSizeCommitLog=1m",
    ]
    broker = start(
        "broker", *settings, "--set", f"storePathCommitLog={tmp_path / 'log'}", "--log-file", str(log)
    ).ready()
    log.rename(tmp_path / "rotated.txt")
    _, said = broker.stop()
    assert said == "" and f"store {folder}" in (tmp_path / "rotated.txt").read_text()
    assert "stopped" in log.read_text(), "who rotates it moves it away"
    assert any(folder.iterdir()) and (tmp_path / "log").exists() and not (folder / "commitlog").exists()


def test_a_log_that_cannot_be_written_is_told(start, tmp_path):
    status, said = start("namesrv", "--log-file", str(tmp_path / "none" / "log")).end()
    assert status == 2 and "cannot be written (No such file or directory)" in said


def test_how_much_is_said_changes_while_it_runs(start, namesrv, broker_args, tmp_path, until):
    file = tmp_path / "log" / "broker.json"
    file.parent.mkdir()
    form = ["--log-file", str(file), "--log-format", "json", "--log-size", "1m", "--log-keep", "2"]
    broker = start(*broker_args, *form, "-n", namesrv.address).ready()
    with Wire(broker.port) as wire:
        assert wire.ask(UPDATE_CONFIG, body=b"logLevel=ERROR").code == 0
        until(lambda: "logLevel is changed to ERROR" in file.read_text())
        assert wire.ask(UPDATE_CONFIG, body=b"brokerPermission=4").code == 0
        assert wire.ask(UPDATE_CONFIG, body=b"logLevel=LOUD").code != 0
    assert broker.stop()[0] == 0
    lines = list(map(json.loads, file.read_text().splitlines()))
    assert lines[-1]["message"].startswith("logLevel is changed to ERROR")
    assert {line["level"] for line in lines} <= {"INFO", "WARNING"}


def test_a_hangup_has_the_settings_read_anew(start, namesrv, broker_args, tmp_path, until):
    file, log = tmp_path / "broker.conf", tmp_path / "log"
    file.write_text("fileReservedTime=48\nmaxMessageSize=1000\n")
    words = *broker_args, "-c", str(file), "-n", namesrv.address, "--log-file", str(log)
    broker = start(*words).ready()

    def reserved():
        with Wire(broker.port) as wire:
            return dict(line.split("=", 1) for line in wire.ask(BROKER_CONFIG).body.decode().split("\n") if line)

    file.write_text("fileReservedTime=71\nmaxMessageSize=1000\nbrokerIP2=10.0.0.1\n")
    broker.process.send_signal(signal.SIGHUP)
    until(lambda: reserved()["fileReservedTime"] == "71")
    assert "brokerIP2 cannot change while the server runs" in log.read_text()
    file.write_text("fileReservedTime=never\n")
    broker.process.send_signal(signal.SIGHUP)
    until(lambda: "the settings stay as they are: " in log.read_text())
    assert reserved()["fileReservedTime"] == "71"
    assert broker.stop()[0] == 0


@pytest.mark.parametrize("wrong", ["much", "-1", "0", "1"])
def test_a_wrong_size_of_the_log_is_told(start, broker_args, wrong):
    status, said = start(*broker_args, "--log-file", "log", f"--log-size={wrong}").end()
    assert status == 2 and f"--log-size {wrong}: must be a size from 1k" in said


def test_a_log_that_is_cut_under_it_does_not_kill_it(start, broker_args, tmp_path, until):
    broker = start(*broker_args).ready()
    with Wire(broker.port) as wire:
        for _ in range(20):
            assert wire.ask(SEND, SEND_FIELDS, bytes(1000)).code == 0
        os.truncate(tmp_path / "store" / "commitlog" / f"{0:020d}", 5000)
        until(lambda: wire.ask(SEND, SEND_FIELDS, b"more").code != 0)
        first = wire.ask(PULL, PULL_FIELDS)
        count = int(first.fields["nextBeginOffset"])
        assert first.code == 0 and 0 < count < 5
        second = wire.ask(PULL, PULL_FIELDS | {"queueOffset": count})
        assert second.code == 1 and "is damaged at offset" in str(second.remark)
    status, log = broker.stop()
    assert status == 1 and "it was cut while the broker used it: restore it from a slave" in log
