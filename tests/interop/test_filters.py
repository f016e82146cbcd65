"""Our SQL92 filter and Apache's own classes are asked the same: what they refuse, and what matches."""

import base64
from random import Random

import pytest

from sparrowmq.broker.sql_filters import predicate
from sparrowmq.errors import InvalidFilter
from sparrowmq.filter.grammar import SEARCHES, parse
from sparrowmq.filter.tree import Texts
from sparrowmq.protocol.messages.properties import render
from tests.filter.expressions import expression, messages
from tests.interop.apache import java_program
from tests.interop.kits import server_jars
from tests.interop.servers import REPOSITORY

pytestmark = pytest.mark.slow

PROGRAM = REPOSITORY / "tests" / "interop" / "java" / "Filters.java"
REFUSED = "refused"


def apaches_answers(version, expressions, properties, folder):
    """What Apache's classes say, a line for each expression."""
    lines = ["\t".join(["m", *(coded(word) for pair in each.items() for word in pair)]) for each in properties]
    lines += [f"e\t{coded(each)}" for each in expressions]
    asked = folder / "asked.txt"
    asked.write_text("\n".join(lines) + "\n")
    done = java_program(version, PROGRAM, str(asked), jars=server_jars(version))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def coded(text):
    return base64.b64encode(text.encode()).decode()


def our_answer(text, properties, reserved):
    """What ours says, in the same form; the reason after a refusal. It takes even the `reserved` words for names."""
    try:
        wanted = parse(text)
    except InvalidFilter as error:
        return f"{REFUSED}: {error}"
    if reserved & {name.upper() for name in wanted.names}:
        return f"{REFUSED}: a word stands where a name should"
    return "".join(str(int(matches(wanted, each))) for each in properties)


def matches(wanted, properties):
    """What it says of values that are at hand. A record that has them must have it say the same."""
    stored = {name: value for name, value in properties.items() if value}  # an empty one is none there
    record = render(stored).encode("utf-8", "surrogatepass")
    assert predicate(wanted).holds(record, 0, len(record)) == wanted.matches(texts(wanted, stored)), record
    return wanted.matches(texts(wanted, properties))


def texts(wanted, properties):
    return Texts([properties.get(name) for name in wanted.names])


def beginning(text, refusal):
    """What stands before the place that a refusal names, if that is all that Apache's parser looks at; else None.

    Apache's stops reading where an expression is whole. Ours refuses what follows: it is a slip, such as ADN.
    """
    if "cannot follow a complete expression" not in refusal:
        return None
    with pytest.raises(InvalidFilter) as caught:
        parse(text)
    lines = text.split("\n")
    return "\n".join([*lines[: caught.value.line - 1], lines[caught.value.line - 1][: caught.value.column - 1]])


def compare(version, seed, count, with_searches, folder):
    random = Random(seed)
    properties = messages(random, 40)
    expressions = [expression(random, with_searches) for _ in range(count)]
    theirs = apaches_answers(version, expressions, properties, folder)
    assert len(theirs) == count
    reserved = SEARCHES if with_searches else frozenset()
    refused = matched = cut = 0
    for text, their_answer in zip(expressions, theirs, strict=True):
        answer = our_answer(text, properties, reserved)
        if (start := beginning(text, answer)) is not None:
            cut += 1
            answer = our_answer(start, properties, reserved)
        assert answer.partition(":")[0] == their_answer, f"seed {seed}: {text!r}: {answer}"
        refused += their_answer == REFUSED
        matched += "1" in their_answer
    # The comparison is worth something only if all kinds come often enough.
    assert refused > count / 10 and matched > count / 4 and cut > count / 200, (refused, matched, cut)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "with_searches"), [("4.9.7", False), pytest.param("5.4.0", True, marks=pytest.mark.slow)]
)
def test_apaches_classes_refuse_and_match_the_same(version, with_searches, tmp_path):
    compare(version, seed=9, count=5000, with_searches=with_searches, folder=tmp_path)
