import pytest

from sparrowmq.console.layout.charts import bar_chart, line_chart


def test_lines_are_drawn_in_time_and_broken_where_nothing_is_known():
    drawn = line_chart("t", {"a": [(1, 2.0), (2, None), (3, 0.0), (4, 1.0)], "b": []})
    assert [(each["name"], each["data"]) for each in drawn["series"]] == [
        ("a", [[1, 2.0], [2, None], [3, 0.0], [4, 1.0]]),
        ("b", []),
    ]
    assert [each["showSymbol"] for each in drawn["series"]] == [False, True], "one point alone makes no line"


def test_bars_stand_in_the_given_order_from_above_with_their_numbers():
    drawn = bar_chart("t", [("orders", 12345), ("a" * 100, 7)])
    axis, (series,) = drawn["yAxis"], drawn["series"]
    assert axis["data"] == ["orders", "a" * 100] and axis["inverse"]
    assert axis["axisLabel"]["overflow"] == "truncate", "a long name leaves room for its bar"
    assert [each["label"]["formatter"] for each in series["data"]] == ["12,345", "7"]


@pytest.mark.parametrize("name", ["{b}", "{a|x}", "<b>x</b>"])
def test_a_name_is_a_value_and_never_a_template(name):
    drawn = bar_chart("t", [(name, 1)])
    texts = [each["label"]["formatter"] for each in drawn["series"][0]["data"]]
    assert name not in "".join(texts) and drawn["yAxis"]["data"] == [name]
