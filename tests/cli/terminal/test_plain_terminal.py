"""Texts of others on a terminal: a real one, of the system."""

import io
import os
import pty

from sparrowmq.cli.mqadmin.main import run
from sparrowmq.cli.terminal.plain_terminal import plain


def shown_by(write) -> str:
    """Return what a terminal gets."""
    ours, terminal = pty.openpty()
    with open(terminal, "w") as stream:
        write(stream)
        stream.flush()
        said = os.read(ours, 1 << 16)
    os.close(ours)
    return said.decode().replace("\r\n", "\n")


def test_terminal_shows_what_would_steer_it_as_an_escape():
    hostile = "a\tb é\n\x1b[2J\x1b]0;title\x07\x9b31m\u202ex\r"
    expected = "a\tb é\n\\x1b[2J\\x1b]0;title\\x07\\x9b31m\\u202ex\\r"
    assert shown_by(lambda stream: plain(stream).write(hostile)) == expected
    file = io.StringIO()
    assert plain(file) is file


def test_mqadmin_writes_to_a_plain_terminal():
    said = shown_by(lambda stream: run(["\x1b[2J"], stream, stream))
    assert said == "The sub command \\x1b[2J not exist.\n"
