from sparrowmq.broker.state.kept_state import KeptState
from sparrowmq.broker.state.kept_tables import KeptTables


def test_the_state_of_a_broker_has_the_tables_of_the_journal():
    assert issubclass(KeptState, KeptTables)
