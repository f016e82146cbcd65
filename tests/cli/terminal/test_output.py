import json
from datetime import datetime

import click
import pytest
from click.testing import CliRunner

from sparrowmq.cli.main import main
from sparrowmq.cli.terminal import output

WHEN = datetime(2026, 3, 4, 5, 6, 7)


@click.command()
@output.OUTPUT_OPTION
@click.argument("what")
def command(what):
    if what == "one":
        output.print_table(("BROKER", "MAX OFFSET", "LAST STORED"), [("a", 10, WHEN), ("bb", 7, None)])
        output.say("two brokers")
    elif what == "two":
        output.print_tables(brokers=(("NAME",), [("a",)]), queues=(("QUEUE",), []))
    elif what == "done":
        output.print_done("made it", topic="t", brokers=["a", "b"], changed={"k": "v"})
    else:
        output.print_names(["a", "b"], "topic")


def run(what, *options):
    done = CliRunner().invoke(command, [what, *options])
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


def test_people_get_columns_and_what_is_said():
    assert run("one")[0] == (
        "BROKER  MAX OFFSET  LAST STORED\na               10  2026-03-04 05:06:07\nbb               7  -\ntwo brokers\n"
    )
    assert run("two")[0] == "NAME\na\n\nQUEUE\n"
    assert run("names")[0] == "a\nb\n"


def test_programs_get_json_and_nothing_else_on_stdout():
    out, err = run("one", "-o", "json")
    assert json.loads(out) == [
        {"broker": "a", "max_offset": 10, "last_stored": "2026-03-04T05:06:07"},
        {"broker": "bb", "max_offset": 7, "last_stored": None},
    ]
    assert err == "two brokers\n"
    assert json.loads(run("two", "-o", "json")[0]) == {"brokers": [{"name": "a"}], "queues": []}
    assert json.loads(run("names", "--output", "json")[0]) == ["a", "b"]


def test_or_csv():
    assert run("one", "-o", "csv")[0] == "broker,max_offset,last_stored\na,10,2026-03-04T05:06:07\nbb,7,\n"
    assert run("two", "-o", "csv")[0] == "name\na\n\nqueue\n"
    assert run("names", "-o", "csv")[0] == "topic\na\nb\n"


HOSTILE = "\x1b[2Ja\x9b1m\r\n\tb\u202e 日\u3000本"


def test_what_a_terminal_would_obey_is_shown_as_an_escape(capsys):
    told = r"\x1b[2Ja\x9b1m\r\n\tb\u202e 日" + "\u3000本"
    output.print_table(("A",), [(HOSTILE,)])
    output.print_names([HOSTILE])
    assert capsys.readouterr().out == f"A\n{told}\n{told}\n"
    output.say(HOSTILE)
    output.print_line(HOSTILE)
    assert capsys.readouterr().out == f"{told}\n".replace(r"\n", "\n") * 2


def test_json_keeps_it_but_hides_it():
    text = output.as_json({"a": HOSTILE})
    assert json.loads(text) == {"a": HOSTILE} and not set(text) & set(HOSTILE) - set("[2Ja1mb 日\u3000本")


@pytest.mark.parametrize("wrong", ["yaml", ""])
def test_another_format_is_refused(wrong):
    assert CliRunner().invoke(command, ["one", "-o", wrong]).exit_code == 2


def test_columns_are_as_wide_as_their_longest_cell_and_numbers_end_together(capsys):
    output.print_table(("NAME", "N", "WHEN"), [("orders", 5, None), ("o", 1234, datetime(2026, 1, 1))])
    assert capsys.readouterr().out.splitlines() == [
        "NAME       N  WHEN",
        "orders     5  -",
        "o       1234  2026-01-01 00:00:00",
    ]


def test_a_table_without_rows_is_its_heads(capsys):
    output.print_table(("NAME", "N"), [])
    assert capsys.readouterr().out == "NAME  N\n"


def test_what_was_done_is_a_sentence_or_an_object():
    assert run("done") == ("made it\n", "")
    assert json.loads(run("done", "-o", "json")[0]) == {
        "topic": "t",
        "brokers": ["a", "b"],
        "changed": {"k": "v"},
    }
    assert run("done", "-o", "csv")[0] == "topic,brokers,changed\nt,a b,k=v\n"


def all_commands(command, path):
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from all_commands(command.get_command(context, name), f"{path} {name}")
    else:
        yield path, command


@pytest.mark.parametrize("noun", ["topic", "group", "message", "dlq", "acl", "broker", "cluster"])
def test_every_command_that_asks_a_cluster_takes_an_output(noun):
    context = click.Context(main)
    for path, command in all_commands(main.get_command(context, noun), noun):
        assert path == "broker run" or "-o" in {word for each in command.params for word in each.opts}, path


@click.command()
@output.OUTPUT_OPTION
def asking():
    output.confirm("go on?")
    output.say(output.ask_secret("the key", "give it in KEY", twice=False))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "Error: there is no terminal to answer this question at: give --yes to go on without it"),
        ("n\n", "Aborted!"),
        ("y\n", "Error: there is no terminal to answer this question at: give it in KEY"),
    ],
)
def test_a_question_without_a_terminal_says_how_to_do_without_it(given, said):
    done = CliRunner().invoke(asking, input=given)
    assert done.exit_code == 1 and said in done.output.splitlines()


def test_a_key_is_read_where_somebody_answers():
    assert "s3cret" in CliRunner().invoke(asking, input="y\ns3cret\n").output.splitlines()
