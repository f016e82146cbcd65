from sparrowmq.kernel.gathering import Window


def test_the_window_is_open_up_to_its_messages_and_its_bytes():
    window = Window(3, 100, 1000)
    assert not window.may_accumulate
    window.add_in_flight(2, 99)
    assert window.is_open and window.has_room and window.may_accumulate
    window.add_in_flight(0, 1)
    assert not window.is_open and not window.has_room
    window.add_in_flight(1, -50)
    assert not window.is_open
    window.add_in_flight(-3, -50)
    assert window.is_open and not window.may_accumulate and window.unanswered == 0


def test_what_is_gathered_takes_room_but_lets_others_enter():
    window = Window(3, 100, 1000)
    window.add_in_flight(1, 10)
    window.accumulated = 2
    assert window.is_open and not window.has_room and window.unanswered == 3


def test_what_waits_comes_first_and_is_limited_in_bytes():
    window = Window(3, 100, 1000)
    window.add_waiting(1, 600)
    window.accumulated_bytes = 300
    assert not window.has_room and window.has_room_for_waiting(100) and not window.has_room_for_waiting(101)


def test_a_shut_window_gathers_nothing():
    window = Window(3, 100, 1000)
    window.add_in_flight(1, 1)
    window.is_shut = True
    assert not window.may_accumulate
