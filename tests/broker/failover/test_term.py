"""What tools are told of a time as a master or a slave."""

from pathlib import Path

from sparrowmq.broker.failover.group_state import OwnEpoch, elected
from sparrowmq.broker.failover.in_sync import InSync
from sparrowmq.broker.failover.term import Term
from sparrowmq.testing import ManualClock


def test_a_slave_tells_who_it_is_and_in_which_epoch_it_follows():
    told = Term(2, 7, process_ms=9, log_epoch=lambda: 5).status_lines()
    assert told == {"memberId": "2", "masterEpoch": "7", "logEpoch": "5", "memberBootTimestamp": "9"}


def test_a_master_tells_who_is_in_sync_too_until_its_lease_has_ended():
    async def commit(wanted):
        return wanted

    in_sync = InSync(
        1,
        elected(None, 1, OwnEpoch(Path("epoch.json"), 6, "", "mine"), 0),
        commit,
        ManualClock(),
        15,
        lambda: True,
    )
    in_sync.members |= {3, 2}
    told = Term(1, 7, in_sync=in_sync).status_lines()
    assert (told["inSyncMembers"], told["epochSettled"]) == ("1,2,3", "false")
    told = Term(1, 7, in_sync=in_sync, is_current=lambda: False).status_lines()
    assert "inSyncMembers" not in told and "epochSettled" not in told


def test_a_log_that_cannot_be_cut_may_have_more_than_is_proved_to_be_the_master_s():
    assert not Term(2, 7, cut_at=100).may_have_more(100) and Term(2, 7, cut_at=100).may_have_more(101)
    assert Term(2, 7).may_have_more(1) and not Term(2, 7, is_shared=True).may_have_more(1)
