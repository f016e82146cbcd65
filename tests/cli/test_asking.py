from datetime import datetime

from click.testing import CliRunner

from sparrowmq.cli.asking import table
from sparrowmq.cli.main import main


def invoke(*args, env=None):
    return CliRunner().invoke(main, args, env={"NAMESRV_ADDR": ""} | (env or {}))


def test_without_an_address_it_says_where_to_give_one():
    result = invoke("topic", "list")
    assert result.exit_code == 2 and result.stderr.startswith(
        "main topic list: no name server is known; give one"
    )


def test_the_environment_may_tell_the_address():
    result = invoke("topic", "list", env={"NAMESRV_ADDR": "127.0.0.1:1"})
    assert (
        result.exit_code == 1 and "cannot ask name server 127.0.0.1:1" in result.stderr and not result.stdout
    )


def test_no_time_is_refused():
    result = invoke("topic", "list", "-n", "127.0.0.1:1", "--timeout", "0")
    assert result.exit_code == 2 and "timeout_s=0 leaves no time" in result.stderr


def test_columns_are_as_wide_as_their_longest_cell_and_numbers_end_together(capsys):
    table(("NAME", "N", "WHEN"), [("orders", 5, None), ("o", 1234, datetime(2026, 1, 1))])
    assert capsys.readouterr().out.splitlines() == [
        "NAME       N  WHEN",
        "orders     5  -",
        "o       1234  2026-01-01 00:00:00",
    ]


def test_a_table_without_rows_is_its_heads(capsys):
    table(("NAME", "N"), [])
    assert capsys.readouterr().out == "NAME  N\n"
