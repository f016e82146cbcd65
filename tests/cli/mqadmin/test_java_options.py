import pytest

from sparrowmq.cli.mqadmin.java_options import HELP, NAMESRV, Option, WrongOptions, parse, usage

OPTIONS = (
    HELP,
    NAMESRV,
    Option("b", "brokerAddr", "which broker", group="place"),
    Option("c", "clusterName", "which cluster", group="place"),
    Option("t", "topic", "topic name", required=True),
    Option("l", "list", "as a list", has_value=False),
    Option("s", "timestamp", "when"),
)


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("-b x -t T", {"b": "x", "t": "T"}),
        ("--brokerAddr x --topic=T", {"b": "x", "t": "T"}),
        ("-bx -tT", {"b": "x", "t": "T"}),
        ("-lb x -t T", {"l": "", "b": "x", "t": "T"}),
        ("-c x -t T -s -1", {"c": "x", "t": "T", "s": "-1"}),
        ("stray -c x -t T more words", {"c": "x", "t": "T"}),
        ("-c x -t T -- -l", {"c": "x", "t": "T"}),
        ("-c x -t T -t U", {"c": "x", "t": "T"}),
        ('-c "x" -t T', {"c": "x", "t": "T"}),
    ],
)
def test_words_are_taken_as_javas_tool_takes_them(words: str, given: dict[str, str]) -> None:
    assert parse(words.split(" "), OPTIONS) == given


@pytest.mark.parametrize(
    "words",
    [
        "-t T",
        "-b x",
        "-b x -c y -t T",
        "-b x -t T -z",
        "-b x -t",
        "-b x -t -l",
        "-b x -t T -lz",
        "-b x -t T -n",
    ],
)
def test_words_that_do_not_fit_are_refused(words: str) -> None:
    with pytest.raises(WrongOptions):
        parse(words.split(), OPTIONS)


def test_the_usage_is_that_of_commons_cli() -> None:
    assert usage("mqadmin x", OPTIONS) == (
        "usage: mqadmin x -b <arg> | -c <arg>  [-h] [-l] [-n <arg>] [-s <arg>] -t <arg>\n"
        " -b,--brokerAddr <arg>    which broker\n"
        " -c,--clusterName <arg>   which cluster\n"
        " -h,--help                Print help\n"
        " -l,--list                as a list\n"
        " -n,--namesrvAddr <arg>   Name server address list, eg: '192.168.0.1:9876;192.168.0.2:9876'\n"
        " -s,--timestamp <arg>     when\n"
        " -t,--topic <arg>         topic name\n"
    )


def test_long_lines_are_cut_at_a_blank_and_go_on_below_their_beginning() -> None:
    words = "word " * 30
    lines = usage("mqadmin x", (Option("a", "all", words.strip()),)).splitlines()
    assert len(lines[1]) <= 110 and lines[2].startswith(" " * 18 + "word")
    assert lines[1].endswith("word") and lines[1:] == [line.rstrip() for line in lines[1:]]
    endless = usage("mqadmin x", (Option("a", "all", "w" * 150),)).splitlines()
    assert "".join(line.strip() for line in endless[1:]).endswith("w" * 90)
