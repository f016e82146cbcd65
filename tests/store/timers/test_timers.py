from sparrowmq.protocol.messages.properties import Properties, render
from sparrowmq.protocol.names import TIMER_TOPIC
from sparrowmq.store.timer_wheel import RECALL
from sparrowmq.store.timers import settling_offset
from tests.store.stores import message

NOW = 1_767_225_600_000


def timer(store, due, offset=None, **properties):
    """A message that waits in the timers' topic, or, with the offset of one, what settles that one."""
    entry = message(b"timer", TIMER_TOPIC if offset is None else "Orders")
    entry.properties = Properties(render({"TIMER_OUT_MS": str(due & (RECALL - 1)), **properties}))
    if offset is None:
        entry.deliver_at_ms = due
    else:
        entry.prepared_offset = settling_offset(offset)
    [placed] = store.append(entry)
    store.publish()
    return placed.offset


def due(timers, now):
    found = []
    timers.read_new()
    while timers.wait_ms(now) == 0:
        for each in timers.due(now, 10):
            found.append(each.offset)
            timers.settle_next()
    return found


def save(store, timers):
    store.flush()
    saved = timers.collect_unsaved()
    if saved is not None:
        timers.save(saved)
        timers.note_saved(saved)
    return saved


def test_the_first_offset_of_the_log_can_be_settled(stores):
    store = stores.open()
    assert timer(store, NOW) == 0
    timer(store, NOW, offset=0)
    assert len(store.timers()) == 0


def test_what_the_log_settles_is_not_pending_with_and_without_a_file(stores):
    store = stores.open()
    first, second = timer(store, NOW), timer(store, NOW + 100)
    timers = store.timers()
    assert len(timers) == 2
    timers.close()
    timer(store, NOW, offset=first)
    timers = store.timers()
    assert due(timers, NOW + 200) == [second]
    timers.close()


def test_what_was_settled_by_the_file_alone_stays_settled(stores):
    store = stores.open()
    offsets = [timer(store, NOW + number) for number in range(20)]
    timers = store.timers()
    assert due(timers, NOW + 5) == []
    assert due(timers, NOW + 16) == offsets[:16]
    assert save(store, timers) is not None
    timers.close()
    timers = store.timers()
    assert due(timers, NOW + 50) == offsets[16:]
    assert save(store, timers).pending is None, "a chunk is added, no new file"
    timers.close()
    assert len(store.timers()) == 0


def test_timer_that_came_after_the_file_stays_pending_when_others_are_settled(stores):
    store = stores.open()
    first = timer(store, NOW)
    timers = store.timers()
    assert due(timers, NOW + 16) == [first]
    save(store, timers)
    later, second = timer(store, NOW + 60_000), timer(store, NOW + 32)
    assert due(timers, NOW + 64) == [second]
    assert save(store, timers).pending is None, "a chunk is added, no new file"
    timers.close()
    timers = store.timers()
    assert due(timers, NOW + 90_000) == [later]
    timers.close()


def test_timer_that_a_start_finds_settled_in_the_log_stays_settled(stores):
    store = stores.open()
    first, second = timer(store, NOW), timer(store, NOW + 60_000)
    timers = store.timers()
    assert due(timers, NOW + 16) == [first]
    save(store, timers)  # the second one is pending in the file
    timers.close()
    timer(store, NOW, offset=second)
    third = timer(store, NOW + 32)
    timers = store.timers()
    assert due(timers, NOW + 64) == [third]
    save(store, timers)
    timers.close()
    timers = store.timers()
    assert due(timers, NOW + 90_000) == []
    timers.close()


def test_nothing_is_written_while_there_are_no_timers(stores, tmp_path):
    store = stores.open()
    timers = store.timers()
    assert save(store, timers) is None and not (tmp_path / "store" / "timers").exists()


def test_a_file_is_written_when_a_start_would_have_much_to_read(stores):
    store = stores.open(commit_log_file_size=1 << 20)
    timers = store.timers()
    for number in range(512):
        assert timers.collect_unsaved() is None
        timer(store, NOW + number)
        timers.read_new()
    assert save(store, timers).queue_offset == 512
    assert timers.collect_unsaved() is None
    timers.close()


def test_what_is_taken_and_not_settled_is_in_the_file(stores):
    store = stores.open()
    offsets = [timer(store, NOW) for _ in range(3)]
    recall = timer(store, NOW | RECALL, TIMER_DEL_UNIQKEY="Orders+x")
    timers = store.timers()
    timers.read_new()
    while timers.wait_ms(NOW + 16) == 0 and not timers.due(NOW + 16, 10):
        pass
    timers.settle_next()
    assert timers.recall_count == 1 and [each.offset for each in timers.recalls(0, 10)] == [recall]
    save(store, timers)
    timers.close()
    timers = store.timers()
    assert len(timers) == 3 and due(timers, NOW + 16) == offsets[1:]
    timers.close()


def test_many_recalls_of_a_slot_are_settled_in_pieces_after_its_messages(stores):
    store = stores.open()
    message_at = timer(store, NOW)
    recalls = [timer(store, NOW | RECALL, TIMER_DEL_UNIQKEY="Orders+x") for _ in range(1200)]
    timers = store.timers()
    timers.read_new()
    while timers.wait_ms(NOW + 16) == 0 and not timers.due(NOW + 16, 10):
        pass
    timers.settle_next()
    assert len(timers) == 1200 and timers._finished == [message_at]
    assert timers.due(NOW + 16, 10) == [] and timers.wait_ms(NOW + 16) == 0
    assert 0 < len(timers) < 1200
    left = len(timers)
    save(store, timers)
    timers.close()
    timers = store.timers()
    assert len(timers) == left
    while timers.wait_ms(NOW + 16) == 0:
        assert timers.due(NOW + 16, 10) == []
    assert len(timers) == 0 and sorted(timers._finished) == recalls[-left:]
    timers.close()


def test_timers_keep_their_files_from_retention_until_they_are_rolled(stores):
    store = stores.open(retention_hours=1, delete_when=";".join(map(str, range(24))))
    offset = timer(store, NOW + (1 << 40))
    timers = store.timers()
    store.checkpoint()
    while store.end < 5 * 4096:
        store.append(message(bytes(500)))
    store.checkpoint()
    late_ms = 1 << 42
    retention = store.retention
    list(retention.run(late_ms))
    assert store.begin == 0
    rolled = timers.next_to_roll()
    assert rolled is not None and rolled.offset == offset
    timers.settle_rolled()
    assert timers.next_to_roll() is None
    list(retention.run(late_ms))
    assert store.begin > 0
    timers.close()


def test_a_timer_whose_record_is_gone_is_told_and_left_out(stores, caplog):
    store = stores.open(retention_hours=1, delete_when=";".join(map(str, range(24))))
    timer(store, NOW)
    while store.end < 5 * 4096:
        store.append(message(bytes(500)))
    timer(store, NOW)
    store.checkpoint()
    list(store.retention.run(1 << 42))
    assert store.begin > 0
    timers = store.timers()
    assert len(timers) == 1
    timers.close()
