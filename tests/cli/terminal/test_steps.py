"""Steps are lines on stderr; what is waited for is only drawn on a terminal."""

from sparrowmq.cli.terminal.steps import Steps


def test_steps_are_lines_and_waiting_is_not(capsys):
    with Steps() as steps:
        steps.tell("[1/2] broker-a: restart")
        steps.tell("waiting")
        steps.begin("to continue: \x1b[2J")
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "[1/2] broker-a: restart\nto continue: \\x1b[2J\n")
