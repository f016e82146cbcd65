import csv
import json

import pytest
from click.testing import CliRunner

from sparrowmq import sync
from sparrowmq.cli.message import message
from sparrowmq.client.client import Client
from sparrowmq.testing.background import BackgroundCluster
from tests.hostile_bodies import DAMAGED, send_damaged

TOPICS = ("One", "Damaged", "Lines", "Torn", "Tailed", "Piped", "Hostile", "Told")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with BackgroundCluster(tmp_path_factory.mktemp("message")) as cluster:
        with sync.connect(cluster.namesrv) as mq:
            for topic in TOPICS:  # else name servers may not know yet, as tests look, what a send has made
                mq.admin.create_topic(topic)
        yield cluster


@pytest.fixture
def run(cluster):
    def run(*words, code=0, **options):
        done = CliRunner().invoke(message, [*words, "-n", cluster.namesrv], **options)
        assert done.exit_code == code, done.output
        return done

    return run


def sent(run, *words, **options):
    return json.loads(run("send", *words, "-o", "json", **options).stdout)


def test_a_message_is_sent_found_and_shown(run):
    (row,) = sent(run, "One", "hello", "--tag", "A", "--key", "k1", "--key", "k2", "--property", "color=red")
    shown = json.loads(run("show", row["id"], "One").stdout)
    assert (shown["body"], shown["tag"], shown["keys"]) == ("hello", "A", ["k1", "k2"])
    assert shown["properties"]["color"] == "red" and shown["queue"] == row["queue"]
    assert json.loads(run("show", shown["offset_id"]).stdout) == shown
    assert run("show", row["id"], "One", "--body").stdout_bytes == b"hello"
    (found,) = json.loads(run("find", "One", "--key", "k2", "-o", "json").stdout)
    assert (found["id"], found["body"], found["keys"]) == (row["id"], "hello", "k1 k2")
    assert "hello" in run("find", "One", "--since", "1h").stdout


def test_lines_of_a_file_or_a_pipe_are_messages_of_their_own(run, tmp_path):
    assert (
        "sent 1,001 messages to Lines"
        in run("send", "Lines", "--file", "-", "--lines", input="".join(f"{n}\n" for n in range(1001))).stdout
    )
    file = tmp_path / "body"
    file.write_bytes(b"\x00\xff\n\x01")
    (row,) = sent(run, "Lines", "--file", str(file))
    assert json.loads(run("show", row["id"], "Lines").stdout)["body_hex"] == "00ff0a01"
    assert len(json.loads(run("find", "Lines", "--since", "1h", "--limit", "2000", "-o", "json").stdout)) == 1002


def test_lines_that_are_not_sent_are_told(run):
    lines = "x\n" * 700 + "\n" + "x\n" * 5
    words = "send", "Torn", "--file", "-", "--lines"
    done = run(*words, input=lines, code=1)
    told = "sent 705 messages to Torn: of the lines up to 706 all but 701, and none after them\n"
    assert done.stdout == told and "the body is empty" in done.stderr
    done = run(*words, "-o", "json", input="x\n\n\nx\n", code=1)
    assert [row["number"] for row in json.loads(done.stdout)] == [1, 4] and "all but 2-3" in done.stderr
    found = run("find", "Torn", "--since", "1h", "--limit", "2000", "-o", "json").stdout
    assert len(json.loads(found)) == 707


def test_messages_are_printed_as_they_come_and_chosen_by_tag(run):
    for body, tag in (("one", "A"), ("two", "B"), ("three", "A")):
        run("send", "Tailed", body, "--tag", tag)
    lines = run("tail", "Tailed", "--since", "1h", "--tag", "A", "--limit", "2").stdout.splitlines()
    assert [line.split()[-1] for line in sorted(lines)] == ["one", "three"] and "tag=A" in lines[0]
    (line,) = run("tail", "Tailed", "--since", "1h", "--tag", "B", "--limit", "1", "--json").stdout.splitlines()
    assert json.loads(line)["body"] == "two"
    assert "write 'A || B' for messages with any" in run("tail", "Tailed", "--tag", "A && B", code=1).output


def test_a_dash_is_what_comes_in_by_the_pipe_and_of_nothing_nothing_is_sent(run):
    (row,) = sent(run, "Piped", "-", input="from a pipe\n")
    assert json.loads(run("show", row["id"], "Piped").stdout)["body"] == "from a pipe\n"
    assert "empty, so nothing was sent" in run("send", "Piped", "-", input="", code=1).output
    assert "sent 0 messages to Piped" in run("send", "Piped", "-", "--lines", input="").stdout
    assert len(json.loads(run("find", "Piped", "--since", "1h", "-o", "json").stdout)) == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["send", "T"], 2, "give a body or a --file"),
        (["send", "T", "x", "--property", "color"], 2, "write name=value"),
        (["send", "a$b", "x"], 2, "a$b"),
        (["find", "T"], 2, "give a --key"),
        (["find", "Absent", "--key", "k"], 1, "Absent"),
        (["show", "nonsense"], 2, "nonsense"),
        (["tail", "T", "--since", "soon"], 2, "is not a time"),
    ],
)
def test_what_cannot_be_is_told(run, words, code, said):
    assert said in run(*words, code=code).output


def test_a_tag_or_a_key_cannot_steer_the_terminal(run):
    run("send", "Hostile", "x", "--tag", "a\x1b[2J", "--key", "k\x9b1m")
    for words in (("find", "Hostile", "--since", "1h"), ("tail", "Hostile", "--since", "1h", "--limit", "1")):
        shown = run(*words).stdout
        assert not {"\x1b", "\x9b"} & set(shown) and r"a\x1b[2J" in shown and r"k\x9b1m" in shown


def test_what_is_shown_and_what_comes_is_for_programs_too(run):
    (row,) = sent(run, "Told", "a,b", "--tag", "T")
    shown = next(csv.DictReader(run("show", row["id"], "Told", "-o", "csv").stdout.splitlines()))
    assert (shown["body"], shown["tag"]) == ("a,b", "T")
    tail = "tail", "Told", "--since", "1h", "--limit", "1", "-o"
    assert json.loads(run(*tail, "json").stdout)["body"] == "a,b"
    (told,) = csv.DictReader(run(*tail, "csv").stdout.splitlines())
    assert (told["body"], told["id"]) == ("a,b", row["id"])


def test_a_body_that_cannot_be_decompressed_hides_no_other_message(run, cluster):
    async def send():
        async with Client(cluster.namesrv) as mq:
            await send_damaged(mq, "Damaged", KEYS="bad", UNIQ_KEY="AB")
            await mq.send("Damaged", b"good")

    cluster.run(send())
    why = "the zlib body is damaged"
    for output in ("table", "json", "csv"):
        found = run("find", "Damaged", "--since", "1h", "-o", output).stdout
        assert why in found and "good" in found
    for words in ((), ("--json",)):
        lines = run("tail", "Damaged", "--since", "1h", "--limit", "2", *words).stdout
        assert why in lines and "good" in lines
    shown = json.loads(run("show", "AB", "Damaged").stdout)
    assert bytes.fromhex(shown["body_hex"]) == DAMAGED and why in shown["body_trouble"]
    assert why in run("show", "AB", "Damaged", "--body", code=1).stderr
