from sparrowmq.client.message_ids import MessageIds
from sparrowmq.protocol.messages.message_id import born_timestamp_ms

NOW_MS = 1_735_646_400_000


def test_ids_have_the_time_of_the_clock_and_differ_after_renewal():
    now = [NOW_MS]
    ids = MessageIds("127.0.0.1", lambda: now[0])
    first, reserved = ids.next(), ids.reserve()
    now[0] += 1000
    later = [ids.next(), reserved.next()]
    ids.renew()
    assert [born_timestamp_ms(each, now[0]) for each in (first, *later)] == [NOW_MS, NOW_MS + 1000, NOW_MS]
    assert ids.next()[12:20] != first[12:20]
