"""A log file that cannot be written is never the end of a server, and never silent."""

import logging
import os

import pytest

from sparrowmq.core import log_handlers, logs
from sparrowmq.core.logs import Form


@pytest.fixture(params=[None, 10_000], ids=["watched", "rotated"])
def log(request, tmp_path):
    (tmp_path / "logs").mkdir()
    file = tmp_path / "logs" / "broker.log"
    handler = logs.handler(str(file), Form.TEXT, request.param, 3)
    logger = logging.getLogger(f"sparrowmq.x{request.param}")
    logger.propagate = False
    logger.addHandler(handler)
    yield logger, file, handler
    logger.removeHandler(handler)
    handler.close()
    logs._unwritable_files.clear()


def test_lines_go_to_stderr_while_the_folder_is_gone_and_back_to_the_file(log, capsys):
    logger, file, handler = log
    logger.warning("one")
    (file.rename(file.with_name("moved")))
    file.parent.rename(file.parent.with_name("away"))
    handler.close()
    handler.stream = None
    logger.warning("two")
    logger.warning("three")
    said = capsys.readouterr().err
    assert said.count("cannot be written (No such file or directory)") == 1
    assert "two" in said and "three" in said
    assert str(file) in logs.problem()
    file.parent.mkdir()
    logger.warning("four")
    assert logs.problem() == "" and "four" in file.read_text() and capsys.readouterr().err == ""


def test_a_server_without_anything_to_say_finds_out_that_its_file_can_be_written_again(log):
    logger, file, handler = log
    logging.getLogger().addHandler(handler)  # where the log of a server is
    try:
        file.unlink(missing_ok=True)
        file.parent.rmdir()
        file.parent.write_text("a file is in the place of the folder")
        handler.close()
        handler.stream = None
        logger.warning("one")
        assert str(file) in logs.problem() and str(file) in logs.problem()
        file.parent.unlink()
        file.parent.mkdir()
        assert logs.problem() == ""
        assert "can be written again" in file.read_text()
    finally:
        logging.getLogger().removeHandler(handler)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_lines_go_to_stderr_while_the_disk_is_full(capsys):
    made = log_handlers.WatchedFile("/dev/full")
    unwritable: dict[str, str] = {}
    made.unwritable = unwritable
    logger = logging.getLogger("sparrowmq.full")
    logger.propagate = False
    logger.addHandler(made)
    logger.warning("lost?")
    assert "No space left on device" in capsys.readouterr().err.splitlines()[0]
    assert list(unwritable) == ["/dev/full"]
    logger.removeHandler(made)
    assert made.stream is not None
    os.dup2(os.open(os.devnull, os.O_WRONLY), made.stream.fileno())  # so that it can be closed
    made.close()
