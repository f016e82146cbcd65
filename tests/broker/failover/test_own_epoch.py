"""What a member knows of itself survives its end, and a store has one mark for good."""

from sparrowmq.broker.failover.group_state import OwnEpoch


def test_a_new_store_was_part_of_no_epoch_and_gets_a_mark_of_its_own(tmp_path):
    first, other = OwnEpoch.load(tmp_path / "a"), OwnEpoch.load(tmp_path / "b")
    assert (first.epoch, first.line) == (0, "")
    assert len(first.store) == 16 and first.store != other.store
    assert OwnEpoch.load(tmp_path / "a") == first


def test_what_was_saved_is_found_again(tmp_path):
    own = OwnEpoch.load(tmp_path)
    own.save(7, "line")
    assert (own.epoch, own.line) == (7, "line")
    assert OwnEpoch.load(tmp_path) == own


def test_what_was_acknowledged_is_known_until_another_epoch_is_part_of_it(tmp_path):
    own = OwnEpoch.load(tmp_path)
    own.save(7, "line", 4000)
    assert OwnEpoch.load(tmp_path).acknowledged == 4000
    own.save(8, "line")
    assert OwnEpoch.load(tmp_path).acknowledged == 0
