"""What `bench peers` writes: tables, losers by name, and aims that are reached or missed."""

from bench.clients.task import BATCHES, IN_TURN, PIPELINED
from bench.ranks import Serving, aims, losers, page


def found(rate, cpu_us=1.0):
    return {"rate": rate, "cpu_us": cpu_us, "server_us": 2.0, "peak_mib": 30.0, "p99_us": 150.0}


def test_the_losers_are_named_by_median_and_the_synced_one_is_beside_the_race():
    rounds = {
        "ours": [found(50), found(9000), found(60)],
        "aiokafka": [found(120)],
        "nats-py": [found(30)],
        "ours (SYNC_FLUSH)": [found(5000)],
    }
    assert list(losers({PIPELINED: rounds})) == [
        "send pipelined: aiokafka is the fastest with 120/s. Losers: ours (50% of it), nats-py (25% of it)."
    ]


def test_alone_there_is_no_race():
    assert list(losers({PIPELINED: {"ours": [found(1)], "ours (SYNC_FLUSH)": [found(2)]}})) == []


def test_aims_are_reached_or_missed_and_left_out_with_their_rival():
    clients = {"ours": [found(300, cpu_us=5.1)], "aiokafka": [found(100)], "confluent-kafka": [found(700)]}
    assert list(aims({PIPELINED: clients})) == [
        "send pipelined, 3 times aiokafka: reached, 3.00 times.",
        "send pipelined, 0.5 times confluent-kafka: missed, 0.43 times.",
        "send pipelined, at most 5 us of client CPU a message: missed, 5.1 us.",
    ]
    assert list(aims({BATCHES: {"ours": [found(1, cpu_us=5.0)]}})) == [
        "consume batches, at most 5 us of client CPU a message: reached, 5.0 us."
    ]
    assert list(aims({PIPELINED: {"aiokafka": [found(1)]}, IN_TURN: {"ours": [found(1)]}})) == []


def test_a_page_has_both_tables_and_what_was_left_out():
    figures = {IN_TURN: {"ours": [found(100), found(200), found(300)], "redis-py": [found(400)]}}
    servers = {
        "ours": Serving("SparrowMQ, ASYNC_FLUSH", 41.2, 60.6),
        "redis-py": Serving("Redis", 12.0, 16.0),
    }
    lines = page(figures, servers, ["Rounds: 3.", "nats-py is left out: no go."]).splitlines()
    assert "| send in turn | ours | 200 (100..300) | 1.00 | 1 (1..1) | 2 (2..2) | 150 |" in lines
    assert "| send in turn | redis-py | 400 | 2.00 | 1 | 2 | 150 |" in lines
    assert "| ours | SparrowMQ, ASYNC_FLUSH | 41 | 61 | 30 |" in lines
    assert "The race:" in lines and "What we want of ours:" not in lines
    assert lines[-1] == "Rounds: 3. nats-py is left out: no go."
