"""The generator grows the same from the same seed, and every construct."""

from random import Random

from sparrowmq.errors import InvalidFilter
from sparrowmq.filter.grammar import SEARCHES, parse
from tests.filter.expressions import expression, messages


def grown(seed: int) -> list[str]:
    random = Random(seed)
    return [expression(random, with_searches=True) for _ in range(500)]


def test_a_seed_grows_the_same_again() -> None:
    assert grown(1) == grown(1) != grown(2)
    assert messages(Random(1), 5) == messages(Random(1), 5)


def test_every_construct_is_grown_and_most_of_it_means_something() -> None:
    all_of_it = " ".join(grown(3)).upper()
    words = ["AND", "OR", "NOT", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", *SEARCHES]
    assert all(word in all_of_it for word in [*words, "<>", ">=", "<=", "=", "'", "(", "-"])
    assert 200 < sum(map(is_taken, grown(3))) < 450


def is_taken(text: str) -> bool:
    try:
        parse(text)
    except InvalidFilter:
        return False
    return True
