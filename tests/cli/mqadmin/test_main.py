import io
import subprocess
import sys

import pytest

from sparrowmq.cli.mqadmin.main import account, run
from sparrowmq.errors import ConfigError

SUB_COMMAND = "org.apache.rocketmq.tools.command.SubCommandException"


def says(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return run(words, out, err), out.getvalue(), err.getvalue()


def test_without_words_the_commands_are_listed() -> None:
    code, out, _ = says()
    assert (code, out.splitlines()[0]) == (0, "The most commonly used mqadmin commands are:")
    assert "   updateTopic          Update or create topic\n" in out
    assert out.endswith("\nSee 'mqadmin help <command>' for more information on a specific command.\n")


def test_help_is_the_commands_usage() -> None:
    assert says("help", "topicStatus") == says("TOPICstatus", "-t", "x", "-h")
    assert says("help", "topicStatus")[1].startswith("usage: mqadmin topicStatus [-h] [-n <arg>] -t <arg>\n")


@pytest.mark.parametrize("words", [["nothing"], ["help", "nothing"]])
def test_an_unknown_command_is_told_on_stdout(words: list[str]) -> None:
    assert says(*words) == (1, "The sub command nothing not exist.\n", "")
    assert says(*words, "--java-exit-codes")[0] == 0


@pytest.mark.parametrize("words", ["topicStatus", "topicStatus -x", "updateTopic -b a -c b -t T", "topicStatus -h"])
def test_a_wrong_command_line_gets_the_usage_and_fails_in_any_case(words: str) -> None:
    for more in ([], ["--java-exit-codes"]):
        code, out, err = says(*words.split(), *more)
        assert (code, err) == (1, "") and out.startswith("usage: mqadmin ")


def test_a_failure_is_told_as_java_does_and_its_exit_code_on_demand(monkeypatch) -> None:
    line = ["topicRoute", "-t", "T", "-n", "127.0.0.1:1"]
    code, out, err = says(*line)
    assert (code, out) == (1, "")
    assert err == (
        "org.apache.rocketmq.tools.command.SubCommandException: TopicRouteSubCommand command failed\n"
        "Caused by: org.apache.rocketmq.remoting.exception.RemotingConnectException: connect to [127.0.0.1:1] failed\n"
    )
    assert says(*line, "--java-exit-codes") == (0, "", err)
    monkeypatch.setenv("SPARROWMQ_JAVA_EXIT_CODES", "1")
    assert says(*line)[0] == 0


@pytest.mark.parametrize(
    ("line", "head"),
    [
        ("sendMessage -t T -p x", "java.lang.RuntimeException: SendMessageCommand command failed"),
        (
            "deleteExpiredCommitLog",
            f"{SUB_COMMAND}: DeleteExpiredCommitLogSubCommand command execute failed.",
        ),
        (
            "queryCq -t T -q 0 -i 0",
            "org.apache.rocketmq.remoting.exception.RemotingConnectException: connect to ",
        ),
    ],
)
def test_some_commands_throw_otherwise(line: str, head: str) -> None:
    assert says(*line.split(), "-n", "127.0.0.1:1")[2].startswith(head)


def test_a_wrong_address_is_told_in_a_sentence() -> None:
    code, _, err = says("topicList", "-n", "127.0.0.1:port")
    assert code == 1 and err.startswith("mqadmin: ") and "127.0.0.1:port" in err


def test_the_account_is_that_of_tools_yml(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    assert account() is None
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    assert account() is None
    (tmp_path / "conf").mkdir()
    file = tmp_path / "conf" / "tools.yml"
    file.write_text("accessKey: rocketmq2\nsecretKey: 12345678\n")
    found = account()
    assert found is not None and found.access_key == "rocketmq2"
    file.write_text("accessKey: rocketmq2\n")
    assert account() is None
    file.write_text("a: [")
    with pytest.raises(ConfigError, match=r"tools\.yml"):
        account()


def test_the_tool_starts_without_what_its_command_does_not_need() -> None:
    code = (
        "import sys; from sparrowmq.cli.mqadmin.main import run; run(['help', 'topicList'], sys.stdout, sys.stderr); "
        "print(sorted(name for name in sys.modules if name.startswith(('click', 'yaml', 'sparrowmq.client', 'numpy'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    code = code.replace("['help', 'topicList']", "['topicList', '-n', '127.0.0.1:1']")
    code = code.replace("'sparrowmq.client'", "'sparrowmq.client.consuming', 'sparrowmq.client.sending'")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_who_reads_no_further_stops_the_tool_in_silence() -> None:
    code = "from sparrowmq.cli.mqadmin.main import main; import sys; sys.argv = ['mqadmin']; main()"
    piped = subprocess.run(
        ["bash", "-c", '"$0" -c "$1" | head -0; echo ${PIPESTATUS[0]}', sys.executable, code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert piped.stderr == "" and piped.stdout.strip() in ("0", "1")
