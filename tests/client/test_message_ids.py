from sparrowmq.client.message_ids import MessageIds

NOW_MS = 1_735_646_400_000


def test_ids_have_the_time_of_the_clock_and_differ_after_renewal():
    now = [NOW_MS]
    ids = MessageIds("127.0.0.1", lambda: now[0])
    first, reserved = ids.next(), ids.reserve()
    now[0] += 1000
    later = [ids.next(), reserved.next()]
    ids.renew()
    at_ms, *later_ms = (int(each[20:28], 16) for each in (first, *later))  # since the month began
    assert later_ms == [at_ms + 1000, at_ms]
    assert ids.next()[12:20] != first[12:20]
