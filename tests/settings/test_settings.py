import ast
import inspect
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar

import pytest

from sparrowmq.auth import first_users
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.cli.servers import serve
from sparrowmq.core import logs
from sparrowmq.errors import ConfigError
from sparrowmq.metrics import metrics_port
from sparrowmq.metrics.metrics_settings import MetricsSettings
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.remoting import request_dispatch
from sparrowmq.remoting.tls.tls_settings import ServerTlsSettings
from sparrowmq.settings import settings as config
from sparrowmq.settings.setting_kinds import ADDRESSES, BOOLEAN, PATH, TEXT, choice, duration, integer, size
from sparrowmq.settings.settings import (
    Settings,
    build,
    from_environment,
    keyed_fields,
    load,
    setting,
)
from sparrowmq.settings.settings_files import parse_properties


class Flush(Enum):
    SYNC = "SYNC_FLUSH"
    ASYNC = "ASYNC_FLUSH"


@dataclass(frozen=True, kw_only=True)
class Some(Settings):
    ACCEPTED: ClassVar = {"sendThreads": "requests are handled on one loop"}
    REFUSED: ClassVar = {"aclEnable": "listen on 127.0.0.1", "tls*": "use a tunnel"}

    port: int = setting("listenPort", 10911, integer(0, 65535))
    file_size: int = setting("mappedFileSize", 1 << 30, size(1024, 1 << 31), also=("mapedFileSize",))
    flush: Flush = setting("flushDiskType", Flush.SYNC, choice(Flush))
    auto_create: bool = setting("autoCreate", True, BOOLEAN)
    namesrv: tuple[str, ...] = setting("namesrvAddr", (), ADDRESSES)
    name: str | None = setting("brokerName", None, TEXT)
    store: Path = setting("storePath", Path("/store"), PATH)
    timeout_ms: int = setting("timeout", 3000, duration("ms", 1, 60_000))
    kept_h: int = setting("fileReservedTime", 72, duration("h", 1, 10_000))


def parse(**given):
    return build(Some, given, "broker.conf")


def test_without_a_file_settings_are_the_built_in_ones():
    settings, report = parse()
    assert settings == Some() and not list(report.sentences()) and not report.honoured


def test_keys_become_typed_fields():
    settings, report = parse(listenPort="1", flushDiskType="async_flush", autoCreate="no", timeout=" 5s ")
    assert (settings.port, settings.flush, settings.auto_create, settings.timeout_ms) == (
        1,
        Flush.ASYNC,
        False,
        5000,
    )
    assert sorted(report.honoured) == ["autoCreate", "flushDiskType", "listenPort", "timeout"]


def test_a_misspelling_that_java_honours_is_honoured():
    settings, report = parse(mapedFileSize="2048")
    assert settings.file_size == 2048 and report.honoured == ["mapedFileSize"]


def test_a_wrong_value_is_told_with_file_key_value_and_what_is_allowed():
    with pytest.raises(ConfigError) as caught:
        parse(listenPort="abc")
    assert str(caught.value) == "broker.conf: listenPort = 'abc' is wrong; it must be a whole number from 0 to 65535"


def test_all_wrong_values_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        parse(listenPort="x", timeout="y", autoCreate="true")
    assert [line.split()[1] for line in str(caught.value).splitlines()] == ["listenPort", "timeout"]


def test_the_right_spelling_wins_over_the_misspelling():
    settings, report = parse(mapedFileSize="4096", mappedFileSize="2048")
    assert settings.file_size == 2048 and not report.unknown


def test_an_unknown_key_is_told_with_the_one_that_was_meant():
    _, report = parse(listenprot="1", brokername="b", nothingLikeIt="1")
    assert report.unknown == {"listenprot": "listenPort", "brokername": "brokerName", "nothingLikeIt": ""}
    assert list(report.sentences()) == [
        "the unknown key listenprot is ignored; did you mean listenPort?",
        "the unknown key brokername is ignored; did you mean brokerName?",
        "the unknown key nothingLikeIt is ignored",
    ]


def test_an_accepted_key_without_effect_is_told_with_its_reason_and_given_back():
    settings, report = parse(sendThreads="16")
    assert list(report.sentences()) == ["sendThreads has no effect here: requests are handled on one loop"]
    assert settings.as_properties()["sendThreads"] == "16"


def test_a_key_that_people_rely_on_is_refused_unless_it_is_off():
    with pytest.raises(ConfigError, match="aclEnable = 'true' is not supported yet: listen on 127"):
        parse(aclEnable="true")
    settings, report = parse(aclEnable="false")
    assert settings.as_properties()["aclEnable"] == "false" and not list(report.sentences())


@pytest.mark.parametrize("key", ["tls.server.mode", "tls.enable", "tlsTestModeEnable", "TLS_KEY"])
def test_all_keys_that_begin_as_a_refused_pattern_are_refused(key):
    with pytest.raises(ConfigError, match=f"{key} = 'permissive' is not supported yet: use a tunnel"):
        parse(**{key: "permissive"})
    for off in ("false", "disabled", ""):
        settings, report = parse(**{key: off})
        assert settings.as_properties()[key] == off and not list(report.sentences())


def test_a_pattern_is_not_proposed_as_a_key():
    _, report = parse(atls="1")
    assert report.unknown == {"atls": ""}


def test_properties_render_as_java_writes_them():
    settings, _ = parse(namesrvAddr="a:1;b:2", autoCreate="no", mappedFileSize="1m")
    properties = settings.as_properties()
    assert properties == properties | {
        "namesrvAddr": "a:1;b:2",
        "autoCreate": "false",
        "flushDiskType": "SYNC_FLUSH",
    }
    assert properties["mappedFileSize"] == "1048576"
    assert "brokerName" not in properties and list(properties) == sorted(properties)


def test_rendered_properties_build_the_same_settings():
    settings, _ = parse(namesrvAddr="a:1", storePath="/x", brokerName="名", sendThreads="1")
    text = "".join(f"{key}={value}\n" for key, value in settings.as_properties().items())
    assert build(Some, parse_properties(text), "copy")[0] == settings


def test_settings_can_be_changed_by_further_keys():
    first, _ = parse(listenPort="1", sendThreads="4")
    second, _ = build(Some, {"brokerName": "b"}, "the command line", over=first)
    assert (second.port, second.name, second.accepted) == (1, "b", {"sendThreads": "4"})


def test_a_properties_file_is_read_as_java_reads_it(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("# comment\n! another\nlistenPort = 1\nbrokerName: \\u540d\nstorePath=/a\\\n  /b\nlistenPort=2\n")
    assert load(file) == {"listenPort": "2", "brokerName": "名", "storePath": "/a/b"}


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_bytes(b"\xef\xbb\xbflistenPort=1\r\n")
    assert load(file) == {"listenPort": "1"}


def test_a_toml_file_is_read(tmp_path):
    file = tmp_path / "broker.toml"
    file.write_text('listenPort = 1\nautoCreate = false\nnamesrvAddr = ["a:1", "b:2"]\n')
    assert load(file) == {"listenPort": "1", "autoCreate": "false", "namesrvAddr": "a:1;b:2"}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("missing.conf", None, "cannot read the settings file .*No such file"),
        ("escape.conf", rb"brokerName=\u12", "is not a settings file"),
        ("broken.toml", b"listenPort =", "is not a settings file"),
        ("table.toml", b"[broker]\nlistenPort = 1\n", "write the keys at the top level"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, content, words):
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=words) as caught:
        load(file)
    assert str(file) in str(caught.value)


def test_the_environment_gives_keys_by_prefix():
    assert from_environment("RMQ_BROKER_", {"RMQ_BROKER_listenPort": "1", "HOME": "/"}) == {"listenPort": "1"}


def test_the_settings_of_a_class_come_before_those_that_it_extends():
    @dataclass(frozen=True, kw_only=True)
    class More(Some):
        first: str = setting("first", "", TEXT)
        second: str = setting("second", "", TEXT)

    assert [each.name for each in config.keyed_fields(More)][:4] == ["first", "second", "port", "file_size"]


@pytest.mark.parametrize("settings", [BrokerSettings, NamesrvSettings])
def test_no_setting_is_honoured_in_name_only(settings):
    """A key that nothing reads belongs among those that are accepted without effect, with the reason."""
    own = Path(inspect.getfile(settings))
    of_tls = Path(inspect.getfile(ServerTlsSettings)).parent.glob("*.py")
    files = [*own.parent.rglob("*.py"), *of_tls, Path(inspect.getfile(MetricsSettings)), Path(logs.__file__)]
    files += [Path(request_dispatch.__file__), Path(metrics_port.__file__)]  # for brokers and name servers alike
    files.append(Path(first_users.__file__))
    files.append(Path(serve.__file__))  # it starts one kind of broker or the other
    read = {name for file in files for name in attributes(file, own=file == own or file.name == "tls_settings.py")}
    # Of the role no other value is accepted, and the file of TLS is read (by its key) before there are settings.
    fixed = {"role", "tls_file"}
    assert {each.name for each in keyed_fields(settings)} - read <= fixed


def attributes(file, own):
    """What a file reads of `settings`, `_settings`, `current` or `now`, and of `self` where that is they."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            whose = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if whose in ("settings", "_settings", "current", "now") or (own and whose == "self"):
                yield node.attr
