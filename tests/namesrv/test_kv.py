import asyncio
import json

import pytest

from sparrowmq.errors import BadStore
from sparrowmq.namesrv.kv import KeyValues
from sparrowmq.protocol.names import ORDER_TOPICS


@pytest.fixture
def path(tmp_path):
    return tmp_path / "namesrv" / "kvConfig.json"


async def test_a_value_outlives_the_server(path):
    await KeyValues(path).put(ORDER_TOPICS, "Orders", "broker-a:4;broker-b:4")
    again = KeyValues(path)
    assert again.get(ORDER_TOPICS, "Orders") == "broker-a:4;broker-b:4"
    assert again.namespace(ORDER_TOPICS) == {"Orders": "broker-a:4;broker-b:4"}


async def test_the_file_is_javas(path):
    await KeyValues(path).put("N", "k", "v")
    assert json.loads(path.read_bytes())["configTable"] == {"N": {"k": "v"}}


async def test_javas_own_file_opens(path):
    path.parent.mkdir()
    path.write_text('{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:4"}}}')
    assert KeyValues(path).get(ORDER_TOPICS, "T") == "broker-a:4"


async def test_what_is_absent_is_none_and_its_deletion_no_error(path):
    values = KeyValues(path)
    await values.delete("N", "k")
    assert values.get("N", "k") is None and values.namespace("N") == {} and not path.exists()


async def test_a_deleted_value_stays_away(path):
    values = KeyValues(path)
    await values.put("N", "k", "v")
    await values.put("N", "l", "w")
    await values.delete("N", "k")
    assert values.namespace("N") == KeyValues(path).namespace("N") == {"l": "w"}


async def test_values_set_at_the_same_time_are_all_kept(path):
    values = KeyValues(path)
    await asyncio.gather(*(values.put("N", f"k{n}", str(n)) for n in range(20)))
    assert KeyValues(path).namespace("N") == {f"k{n}": str(n) for n in range(20)}


async def test_a_value_that_cannot_be_saved_is_not_set(path):
    values = KeyValues(path)
    path.parent.write_text("a file where the folder should be")
    with pytest.raises(OSError):
        await values.put("N", "k", "v")
    assert values.get("N", "k") is None


async def test_a_file_of_something_else_is_refused(path):
    path.parent.mkdir()
    path.write_text('{"topicConfigTable":{}}')
    with pytest.raises(BadStore, match=r"kvConfig\.json"):
        KeyValues(path)


async def test_a_file_that_cannot_be_written_is_a_problem_until_it_can(path):
    values = KeyValues(path)
    await values.put("N", "k", "v")
    away = path.parent.rename(path.parent.with_name("away"))
    path.parent.write_text("a file")
    with pytest.raises(OSError):
        await values.put("N", "l", "w")
    assert str(path) in values.problem and values.namespace("N") == {"k": "v"}
    await values.try_again()
    assert values.problem
    path.parent.unlink()
    away.rename(path.parent)
    await values.try_again()
    assert not values.problem and KeyValues(path).namespace("N") == {"k": "v"}
