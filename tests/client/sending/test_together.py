import asyncio

from sparrowmq.client.sending.send_request import batch_request
from sparrowmq.kernel.gathering import Batch
from sparrowmq.protocol.messages import batch


def parts(count: int) -> Batch:
    found, loop = Batch("t", 3.0), asyncio.get_running_loop()
    for number in range(count):
        found.append(b"%d" % number, b"UNIQ_KEY\x01", f"id{number}", loop.create_future())
    return found


async def test_several_are_a_batch_as_brokers_read_it():
    item = batch_request(parts(2), "")
    found = [(bytes(part.body), bytes(part.properties), part.flag) for part in batch.decode(item.body)]
    assert found == [(b"0", b"UNIQ_KEY\x01id0\x02", 0), (b"1", b"UNIQ_KEY\x01id1\x02", 0)]
    assert item.is_batch and item.count == 2 and item.properties == ""
    assert not item.is_oneway and not item.is_abandoned


async def test_one_is_a_single_message():
    item = batch_request(parts(1), "")
    assert not item.is_batch and item.body == b"0" and item.properties == "WAIT\x01true\x02UNIQ_KEY\x01id0\x02"


async def test_those_still_wanted_go_on_alone_with_the_time_that_is_left():
    item = batch_request(parts(3), "shop")
    item.started_at, item.deadline, item.attempts = 1.0, 4.0, 2
    item.batch.futures[1].cancel()
    singles = list(item.singles())
    assert [(each.body, each.msg_ids, each.properties) for each in singles] == [
        (b"0", ("id0",), "WAIT\x01true\x02UNIQ_KEY\x01id0\x02"),
        (b"2", ("id2",), "WAIT\x01true\x02UNIQ_KEY\x01id2\x02"),
    ]
    assert {(each.started_at, each.deadline, each.attempts, each.namespace) for each in singles} == {
        (1.0, 4.0, 1, "shop")
    }
    assert not item.is_abandoned
    for each in singles:
        assert each.future is not None
        each.future.cancel()
    assert item.is_abandoned
