"""Users and policies (ACL 2.0): both admin tools, at Apache's broker 5.4.0 and at ours, say the same."""

from __future__ import annotations

import io
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from sparrowmq.cli.mqadmin.main import run
from tests.interop.apache import ApacheBroker, ApacheNamesrv, mqadmin
from tests.interop.servers import OURS, SETTINGS, OurBroker, OurNamesrv, Target
from tests.interop.test_access import AUTH_OF_5

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(900)]

VERSION: Final = "5.4.0"
KEYS: Final = "accessKey: admin\nsecretKey: secretOfAdmin\n"
USERS: Final = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"admin","password":"secretOfAdmin"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"secretOfInner"}',
}
SCRIPT: Final = [
    "createUser -b {broker} -u alice -p secretOfAlice -t Normal",
    "getUser -b {broker} -u alice",
    "listUser -c DefaultCluster",
    "updateUser -b {broker} -u alice -s disable",
    "createAcl -c DefaultCluster -s User:alice -r Topic:orders,Group:* -a Pub,Sub -d Allow -i 10.0.0.0/8",
    "updateAcl -b {broker} -s User:alice -r Topic:ord* -a all -d Deny",
    "updateAcl -b {broker} -s User:alice -r Topic:orders -a Sub,Get -d Allow",
    "getAcl -b {broker} -s User:alice",
    "deleteAcl -b {broker} -s User:alice -r Topic:ord*",
    "listAcl -b {broker} -s alice",
    "deleteUser -b {broker} -u alice",
    "getUser -b {broker} -u alice",
]


@contextmanager
def broker(side: str, folder: Path) -> Iterator[Target]:
    """A broker with a Super user, and its name server."""
    if side == OURS:
        with OurNamesrv() as ours, OurBroker(ours.address, folder / "store", USERS) as started:
            yield Target(side, ours.address, started.address)
        return
    providers = {key: value for key, value in AUTH_OF_5.items() if key.endswith("Provider")}
    conf = SETTINGS | providers | USERS | {"authConfigPath": folder / "auth"}
    with (
        ApacheNamesrv(VERSION) as namesrv,
        ApacheBroker(VERSION, namesrv.address, folder / "store", conf) as apaches,
    ):
        yield Target(side, namesrv.address, apaches.address)
        apaches.kill()


def javas_tool(words: list[str], home: Path) -> str:
    """Run Java's tool. It reads the keys below its ROCKETMQ_HOME, which its -D option names."""
    done: subprocess.CompletedProcess[str] = mqadmin(
        VERSION, *words, jvm=[f"-Drocketmq.home.dir={home}", "-XX:TieredStopAtLevel=1"], limit_s=120
    )
    return done.stdout + done.stderr


def our_tool(words: list[str], home: Path) -> str:
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROCKETMQ_HOME", str(home))
        run(words, out, err)
    return out.getvalue() + err.getvalue()


def said(side: str, tool: str, folder: Path) -> dict[str, list[str]]:
    """By command, the lines of its answer."""
    (folder / "conf").mkdir(parents=True)
    (folder / "conf" / "tools.yml").write_text(KEYS)
    answers = {}
    with broker(side, folder) as target:
        for number, line in enumerate(SCRIPT):
            words = [*line.format(broker=target.broker).split(), "-n", target.namesrv]
            text = (our_tool if tool == "ours" else javas_tool)(words, folder)
            text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)
            # 5.4.0 writes how it reads its logging configuration.
            lines = [each for each in text.splitlines() if each and "|-" not in each]
            answers[f"{number} {line}"] = lines
    return answers


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What our tool says at our broker."""
    return said(OURS, "ours", tmp_path_factory.mktemp("ours") / "ours")


@pytest.mark.parametrize(("side", "tool"), [(OURS, "java"), (f"apache-{VERSION}", "ours")])
def test_the_other_tool_and_the_other_broker_say_the_same(
    wanted: dict[str, list[str]], side: str, tool: str, tmp_path: Path
) -> None:
    found = said(side, tool, tmp_path / "other")
    assert found == wanted


def test_the_script_did_what_it_says(wanted: dict[str, list[str]]) -> None:
    by_number = list(wanted.values())
    assert by_number[0] == ["create user to ADDRESS success."]
    assert [line.split()[0] for line in by_number[2][1:-1]] == ["admin", "alice", "inner"]
    assert len(by_number[7]) == 4 and len(by_number[9]) == 3 and by_number[-1] == []
