"""sparrowmq.spark.sink.row_identity: what is repeated has the ids that it had."""

from sparrowmq.spark.sink.row_identity import RowIds, Writing, stream_task, write_task

NOW_MS = 1_795_000_000_000


def ids(count, **given):
    made = RowIds(Writing("query", **given))
    return [key for size in (1, count - 1) for key in made.take(size, NOW_MS + size).to_pylist()]


def test_a_repeated_task_makes_the_same_ids_whenever_it_runs():
    assert ids(70_000, batch=1, partition=2) == ids(70_000, batch=1, partition=2)
    assert ids(3, run="a") == ids(3, run="b")


def test_no_two_rows_have_the_same_id():
    made = [
        *ids(70_000, batch=1, partition=2),
        *ids(1000, batch=2, partition=1),
        *ids(1000, batch=2, partition=2),
        *ids(1000, batch=12),
        *ids(1000, partition=12),
    ]
    assert len(set(made)) == len(made)


def test_ids_have_javas_form_and_say_the_beginning_of_the_month():
    (made,) = ids(1)
    assert len(made) == 32 and made == made.upper() and int(made, 16)
    assert made[20:28] == "00000000"


def test_outside_of_spark_a_write_is_what_it_is_called():
    assert write_task("copy-1", "run-1", is_named=True) == Writing("copy-1", run="run-1")
    assert stream_task() == Writing("")
