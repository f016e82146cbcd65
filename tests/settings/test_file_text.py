"""Files of Apache's installations in any encoding: comments may have any bytes, and a value with such bytes warns."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparrowmq.auth.account_files import AccountFiles
from sparrowmq.cli.mqadmin.main import account
from sparrowmq.settings.live_settings import LiveSettings
from sparrowmq.settings.settings import load
from tests.settings.test_live_settings import Some

COMMENT = "# 所属集群名字\n"
WARNING = "has bytes that are no UTF-8, read as Latin-1"


@pytest.mark.parametrize("encoding", ["gbk", "gb18030", "big5", "utf-8"])
@pytest.mark.parametrize("name", ["broker.conf", "namesrv.conf"])
def test_comments_in_any_encoding_are_skipped_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, encoding: str, name: str
) -> None:
    file = tmp_path / name
    file.write_bytes(COMMENT.encode(encoding, "replace") + b"brokerName = broker-a  \nlistenPort=1\n")
    assert load(file) == {"brokerName": "broker-a  ", "listenPort": "1"} and not caplog.records


def test_a_value_in_latin_1_is_read_as_java_reads_it_and_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "broker.conf"
    file.write_bytes(b"# \xe9\nbrokerName=caf\xe9\nbrokerClusterName=caf\xc3\xa9\n")
    assert load(file) == {"brokerName": "café", "brokerClusterName": "café"}
    assert [record.getMessage() for record in caplog.records] == [
        f"{file}: brokerName {WARNING}; save the file as UTF-8"
    ]


async def test_a_saved_change_leaves_the_bytes_of_other_lines_alone(tmp_path: Path) -> None:
    file = tmp_path / "some.conf"
    rest = COMMENT.encode("gbk") + b"ownName=caf\xe9\n"
    file.write_bytes(rest + b"maxSize=10\n")
    await LiveSettings(Some(), file).change({"maxSize": "12"}, "me")
    assert file.read_bytes() == rest + b"maxSize=12\n"


def test_accounts_with_such_comments_are_read_and_a_value_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "plain_acl.yml"
    # The bytes 80 to 9F, which GBK has too, would be control characters: YAML allows none.
    file.write_bytes(
        COMMENT.encode("gbk") + "accounts:\n  - accessKey: RocketMQ # 管理员\n    secretKey: 12345678\n".encode("gbk")
    )
    files = AccountFiles(file)
    assert list(files.current.by_key) == ["RocketMQ"] and not caplog.records
    file.write_bytes(b"accounts:\n  - accessKey: caf\xe9-admin\n    secretKey: 12345678\n")
    files = AccountFiles(file)
    assert list(files.current.by_key) == ["café-admin"]
    assert f"{file}: the value in line 2, column 16 {WARNING}" in caplog.text
    change = files.with_account({"accessKey": "another", "secretKey": "12345678"}, 1)
    change.write()
    assert list(AccountFiles(file).current.by_key) == ["café-admin", "another"]


def test_the_account_of_mqadmin_may_have_such_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "conf").mkdir()
    file = tmp_path / "conf" / "tools.yml"
    file.write_bytes(COMMENT.encode("gbk") + b"accessKey: rocketmq2\nsecretKey: 12345678\n")
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    credentials = account()
    assert credentials is not None and credentials.access_key == "rocketmq2" and not caplog.records
    file.write_bytes(b"accessKey: rocketmq2\nsecretKey: 1234567\xe9\n")
    credentials = account()
    assert credentials is not None and credentials.secret_key == "1234567é"
    assert f"{file}: secretKey {WARNING}" in caplog.text
