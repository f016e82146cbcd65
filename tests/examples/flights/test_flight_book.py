import importlib.util
import zlib
from datetime import UTC, datetime

import msgspec
import pytest

from examples.flights import flight_book
from examples.flights.flight_book import Flight, FlightBook
from sparrowmq.errors import ConfigError

# The first to leave in 2013: its line in the data set says 5:15 New York time, 2 minutes late.
FIRST = {
    "sequence": 0,
    "scheduled": "2013-01-01T10:15:00Z",
    "departed": "2013-01-01T10:17:00Z",
    "origin": "EWR",
    "dest": "IAH",
    "carrier": "UA",
    "flight": 1545,
    "tailnum": "N14228",
    "aircraft": "N14228",
    "dep_delay_min": 2,
    "arr_delay_min": 11,
    "distance_miles": 1400,
}


@pytest.fixture(scope="module")
def book() -> FlightBook:
    return FlightBook()


def test_the_book_has_every_flight_of_2013(book):
    assert len(book) == 336_776
    assert book.table["year"].unique().to_pylist() == [2013]


def test_the_first_flight_is_told_as_json(book):
    assert msgspec.json.decode(next(iter(book)).body()) == FIRST


def test_flights_come_in_the_order_of_their_departure():
    departed = [flight.departed for flight in FlightBook(3000)]
    assert departed == sorted(departed)


def test_sequence_numbers_count_without_a_gap():
    limit = flight_book._ROWS_AT_ONCE + 10
    assert [flight.sequence for flight in FlightBook(limit)] == list(range(limit))


def test_a_limit_takes_the_first_flights(book):
    assert len(FlightBook(7)) == 7
    assert list(FlightBook(7)) == [flight for flight, _ in zip(book, range(7), strict=False)]


def test_a_cancelled_flight_leaves_when_planned_and_has_no_delays():
    cancelled = [flight for flight in FlightBook(2000) if flight.dep_delay_min is None]
    assert cancelled
    assert all(flight.departed == flight.scheduled for flight in cancelled)
    assert all(flight.properties() == {} for flight in cancelled)


def test_delays_are_properties_of_the_message(book):
    assert next(iter(book)).properties() == {"dep_delay": "2", "arr_delay": "11"}


def test_a_flight_without_a_tail_number_has_its_own_number_as_aircraft():
    nameless = [flight for flight in FlightBook(20_000) if flight.tailnum is None]
    assert nameless
    assert all(flight.aircraft == f"{flight.carrier}{flight.flight}" for flight in nameless)


def test_a_flight_reads_back_from_its_body():
    flight = Flight(
        1, datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 1, 1, tzinfo=UTC),
        "JFK", "MIA", "AA", 1, None, "AA1", None, None, 1089,
    )  # fmt: skip
    assert msgspec.json.decode(flight.body(), type=Flight) == flight


def test_aircraft_spread_over_four_queues(book):
    aircraft = {flight.aircraft for flight in FlightBook(20_000)}
    counts = [0, 0, 0, 0]
    for name in aircraft:
        counts[zlib.crc32(name.encode()) % 4] += 1
    assert min(counts) > len(aircraft) / 5


def test_a_missing_data_set_says_what_to_install(monkeypatch):
    monkeypatch.setattr(flight_book, "find_spec", lambda name: importlib.util.find_spec("no_such_package"))
    with pytest.raises(ConfigError, match=r"install sparrowmq\[demo\]"):
        FlightBook()
