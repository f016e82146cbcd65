from sparrowmq.console.layout.trouble_panel import left_out_text, since_text
from sparrowmq.console.page_times import time_of
from sparrowmq.console.reading.troubles import Trouble

TROUBLE = Trouble("no_answer", True, "b", "broker b", "it is silent", "start it", 1_000)


def test_the_beginning_is_exact_or_a_limit():
    assert since_text(TROUBLE) == f"since {time_of(1_000)}"
    older = Trouble("no_answer", True, "b", "broker b", "it is silent", "start it", 1_000, is_older=True)
    assert since_text(older).startswith("at least since ")


def test_what_is_left_out_is_named_with_its_queues():
    assert left_out_text({}) == ""
    assert left_out_text({"a": 4, "b": 0}) == "Left out, because no master answers: 4 queues of a, those of b"
