"""An honest run passes; each way of cheating is caught, and by the figure that is meant for it."""

import zlib
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.flights import proof
from examples.flights.flight_book import FlightBook

COUNT = 2000


@pytest.fixture(scope="module")
def source() -> pa.Table:
    return proof.departures(COUNT)


def stored(source: pa.Table) -> pa.Table:
    """The table that a faultless run makes."""
    queues = np.array([zlib.crc32(name.encode()) % 4 for name in source["aircraft"].to_pylist()])
    offsets = np.zeros(len(queues), np.int64)
    for queue in range(4):
        offsets[queues == queue] = np.arange((queues == queue).sum())
    extra = {
        "queueId": pa.array(queues, pa.int32()),
        "queueOffset": pa.array(offsets),
        "msgId": pa.array([f"id-{number}" for number in range(len(queues))]),
    }
    for name, column in extra.items():
        source = source.append_column(name, column)
    return source


@pytest.fixture
def judge(tmp_path, source):
    """Writes tables, possibly spoiled ones, and gives the verdict on them."""

    def judge(flights=None, statistics=None, results=None, **counts):
        right = proof.delay_statistics(source)
        tables = {"flights": flights or stored(source), "statistics": statistics or right}
        for name, table in tables.items():
            (tmp_path / name).mkdir()
            half = table.num_rows // 2
            pq.write_table(table.slice(0, half), tmp_path / name / "part-0.parquet")
            pq.write_table(table.slice(half), tmp_path / name / "part-1.parquet")
        evidence = proof.Evidence(
            COUNT,
            COUNT,
            tmp_path / "flights",
            tmp_path / "statistics",
            right.to_pylist() if results is None else results,
        )
        return proof.prove(replace(evidence, **counts), source)

    return judge


def set_cell(table: pa.Table, row: int, name: str, value) -> pa.Table:
    values = table[name].to_pylist()
    values[row] = value
    index = table.column_names.index(name)
    return table.set_column(index, name, pa.array(values, table[name].type))


@pytest.mark.slow
def test_a_faultless_run_passes(judge, source):
    verdict = judge()
    assert verdict.faults == []
    assert verdict.figures["table_rows"] == COUNT
    assert verdict.figures["results"] == verdict.figures["statistics"] > 100


def test_rows_may_stand_in_any_order_in_the_files(judge, source):
    shuffled = np.random.default_rng(7).permutation(COUNT)
    assert judge(flights=stored(source).take(shuffled)).faults == []


def test_the_order_of_departures_is_the_one_that_was_sent(source):
    sent = list(FlightBook(COUNT))
    wanted = source.to_pylist()
    names = source.column_names
    assert [{name: getattr(flight, name) for name in names} for flight in sent] == wanted


def test_statistics_of_the_source_are_those_counted_by_hand(source):
    by_hand: dict[tuple[str, datetime], list[int | None]] = {}
    for row in source.to_pylist():
        hour = row["scheduled"].replace(minute=0)
        by_hand.setdefault((row["origin"], hour), []).append(row["dep_delay_min"])
    for row in proof.delay_statistics(source).to_pylist():
        delays = by_hand.pop((row["origin"], row["hour"]))
        flown = [delay for delay in delays if delay is not None]
        assert (row["flights"], row["cancelled"]) == (len(delays), len(delays) - len(flown))
        assert row["max_dep_delay_min"] == max(flown, default=None)
        if flown:
            assert row["mean_dep_delay_min"] == pytest.approx(sum(flown) / len(flown))
            assert row["late_share"] == pytest.approx(sum(delay > 15 for delay in flown) / len(flown))
    assert not by_hand


def only(**wrong):
    """All figures of faults are 0 but these."""
    counts = dict.fromkeys(
        [
            "lost",
            "doubled",
            "unknown",
            "out_of_order",
            "differing",
            "ids_doubled",
            "statistics_wrong",
            "results_wrong",
        ],
        0,
    )
    return counts | wrong


def assert_caught(verdict, **wrong):
    faults = only(**wrong)
    assert {name: verdict.figures[name] for name in faults} == faults
    assert verdict.faults


def test_a_lost_flight_is_caught(judge, source):
    verdict = judge(flights=stored(source).slice(1))
    assert_caught(verdict, lost=1)
    assert "1 flights are missing in the table, not 0" in verdict.faults


def test_a_doubled_flight_is_caught(judge, source):
    rows = stored(source)
    again = set_cell(set_cell(rows.slice(5, 1), 0, "queueOffset", 10**6), 0, "msgId", "another id")
    verdict = judge(flights=pa.concat_tables([rows, again]))
    assert verdict.figures["doubled"] == 1
    assert verdict.figures["lost"] == 0
    assert verdict.faults


def test_a_message_read_twice_is_caught(judge, source):
    rows = stored(source)
    assert_caught(judge(flights=pa.concat_tables([rows, rows.slice(9, 1)])), doubled=1, ids_doubled=1)


def test_two_flights_of_an_aircraft_in_the_wrong_order_are_caught(judge, source):
    rows = stored(source)
    names = rows["aircraft"].to_pylist()
    first = next(row for row, name in enumerate(names) if names.count(name) == 2)
    second = names.index(names[first], first + 1)
    offsets = rows["queueOffset"].to_pylist()
    swapped = set_cell(rows, first, "queueOffset", offsets[second])
    swapped = set_cell(swapped, second, "queueOffset", offsets[first])
    assert_caught(judge(flights=swapped), out_of_order=1)


def test_an_aircraft_on_two_queues_is_caught(judge, source):
    rows = stored(source)
    names = rows["aircraft"].to_pylist()
    last = max(row for row, name in enumerate(names) if names.count(name) > 1)
    moved = set_cell(rows, last, "queueId", (rows["queueId"][last].as_py() + 1) % 4)
    assert_caught(judge(flights=moved), out_of_order=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("origin", "XXX"),
        ("dest", None),
        ("flight", 0),
        ("tailnum", None),
        ("aircraft", "N0"),
        ("dep_delay_min", None),
        ("arr_delay_min", 9999),
        ("distance_miles", 0),
        ("carrier", "ZZ"),
    ],
)
def test_a_field_that_changed_on_the_way_is_caught(judge, source, name, value):
    assert_caught(judge(flights=set_cell(stored(source), 3, name, value)), differing=1)


@pytest.mark.parametrize("name", ["scheduled", "departed"])
def test_a_time_that_changed_on_the_way_is_caught(judge, source, name):
    rows = stored(source)
    later = rows[name][3].as_py() + timedelta(hours=5)
    assert_caught(judge(flights=set_cell(rows, 3, name, later)), differing=1)


@pytest.mark.parametrize("sequence", [None, -1, COUNT])
def test_a_row_that_is_no_flight_is_caught(judge, source, sequence):
    assert_caught(judge(flights=set_cell(stored(source), 0, "sequence", sequence)), lost=1, unknown=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("flights", 99),
        ("cancelled", 99),
        ("mean_dep_delay_min", 0.123),
        ("max_dep_delay_min", -99),
        ("late_share", None),
    ],
)
def test_a_wrong_statistic_is_caught_in_the_table_and_in_the_results(judge, source, name, value):
    wrong = set_cell(proof.delay_statistics(source), 0, name, value)
    verdict = judge(statistics=wrong, results=wrong.to_pylist())
    assert_caught(verdict, statistics_wrong=1, results_wrong=1)


def test_a_missing_statistic_is_caught(judge, source):
    assert_caught(judge(statistics=proof.delay_statistics(source).slice(1)), statistics_wrong=1)


def test_a_statistic_too_many_is_caught(judge, source):
    right = proof.delay_statistics(source)
    alien = set_cell(right.slice(0, 1), 0, "origin", "ZZZ")
    assert_caught(judge(statistics=pa.concat_tables([right, alien])), statistics_wrong=1)


def test_a_statistic_that_stands_twice_is_caught(judge, source):
    right = proof.delay_statistics(source)
    assert_caught(judge(statistics=pa.concat_tables([right, right.slice(0, 1)])), statistics_wrong=1)


def test_results_that_were_not_consumed_are_caught(judge, source):
    rows = proof.delay_statistics(source).to_pylist()
    verdict = judge(results=rows[1:])
    assert_caught(verdict, results_wrong=1)
    assert verdict.figures["results"] == len(rows) - 1


def test_no_results_at_all_are_caught(judge):
    assert judge(results=[]).figures["results_wrong"] > 100


@pytest.mark.parametrize("name", ["sent", "stored"])
def test_counts_that_differ_are_caught(judge, name):
    verdict = judge(**{name: COUNT - 1})
    assert_caught(verdict)
    assert verdict.figures[name] == COUNT - 1


def test_means_may_differ_in_the_last_digit_only():
    near = pa.chunked_array([[1.0, 1.0, None]])
    assert proof.same(near, pa.chunked_array([[1.0 + 1e-12, 1.0 + 1e-6, None]])).tolist() == [
        True,
        False,
        True,
    ]


def test_codes_keep_the_order_of_what_they_stand_for():
    column = pa.chunked_array([["b", "a"], ["c", "a"]])
    assert proof.codes(column).tolist() == [1, 0, 2, 0]
