"""Words of others in our log and errors."""

import os

import pytest

from sparrowmq.core.safe_text import counted, error_sentence, shown, without_folders, write_problem


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("10.0.0.1@4711", "10.0.0.1@4711"),
        ("", ""),
        ("航班", "航班"),
        ("a b", "a b"),
        ("C:\\logs", "C:\\logs"),
        ("me\n2026-01-01 INFO all is well", "me\\n2026-01-01 INFO all is well"),
        ("a\rb\tc\x1b[2Jd\0", "a\\rb\\tc\\x1b[2Jd\\x00"),
        ("a\\n\n", "a\\\\n\\n"),
        ("a\u2028b\u202ec\ud800", "a\\u2028b\\u202ec\\ud800"),
        (17, "17"),
    ],
)
def test_what_does_not_print_is_escaped(words, expected):
    assert shown(words) == expected


def test_what_is_too_long_is_cut_and_counted():
    assert shown("x" * 1_000_000) == "x" * 200 + "... (1000000 characters)"
    assert shown("\n" * 300) == "\\n" * 100 + "... (300 characters)"
    assert shown("x" * 200) == "x" * 200
    assert shown("x" * 20, 10) == "x" * 10 + "... (20 characters)"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "no room on the disk for /data/store/commitlog/000; free some",
            "no room on the disk for 000; free some",
        ),
        ("'/etc/mq/plain_acl.yml' cannot be written", "'plain_acl.yml' cannot be written"),
        ("/a/b/x.yml has changed, /a/b/y.yml too", "x.yml has changed, y.yml too"),
        ("see /var/", "see /var/"),
        ("Producer: /127.0.0.1:4711", "Producer: /127.0.0.1:4711"),
        ("see http://rocketmq.apache.org/docs/faq/ or https://a.b/c/d", None),
        ("1/2/3 and a/b/c and 10.0.0.0/8", None),
        ("no slash", None),
    ],
)
def test_a_path_is_shown_without_its_folders(words, expected):
    assert without_folders(words) == (words if expected is None else expected)


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path):
    there = tmp_path / "config"
    there.write_text("")
    with pytest.raises(OSError) as folder:
        os.makedirs(there, exist_ok=True)
    assert write_problem(folder.value) == f"{there} is a file, and should be a folder; move it away"
    with pytest.raises(OSError) as file:
        (there / "topics.json").write_text("")
    assert write_problem(file.value).startswith(f"one of the folders of {there / 'topics.json'} is a file")
    assert write_problem(OSError(28, "No space left on device")) == "No space left on device"
    assert write_problem(ValueError("no number")) == "no number"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FileNotFoundError(2, "No such", "/x"), "/x cannot be used (No such); correct the path or its owner"),
        (FileExistsError(17, "File exists", "/x"), "/x is a file, and should be a folder; move it away"),
        (OSError(28, "No space left", "/x"), "/x cannot be written (No space left); free some room"),
        (OSError(28, "No space left"), "the output cannot be written (No space left); free some room"),
        (OSError(111, "Refused"), "[Errno 111] Refused"),
        (OSError("in words"), "in words"),
        (ValueError("other"), "other"),
    ],
)
def test_an_error_of_the_system_is_a_sentence(error, expected):
    assert error_sentence(error) == expected


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [
        (0, "message", "0 messages"),
        (1, "message", "1 message"),
        (2000, "dead letter", "2,000 dead letters"),
        (1, "entry", "1 entry"),
        (2, "entry", "2 entries"),
    ],
)
def test_a_noun_agrees_with_its_number(number, noun, words):
    assert counted(number, noun) == words
