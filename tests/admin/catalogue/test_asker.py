from sparrowmq.admin.catalogue import cluster_table, group_progress
from sparrowmq.protocol.requests.bodies import ClusterTable
from sparrowmq.protocol.requests.offset_bodies import ConsumeStats
from sparrowmq.protocol.wire.header import NoFields
from sparrowmq.remoting.request_in_flight import Response


class Recorder:
    """Keeps what it is asked, and answers with one body."""

    def __init__(self, body=b""):
        self.asked = []
        self._answer = Response(0, NoFields(), None, body, 0)

    async def ask(self, address, request, body=b"", *, accept=(), timeout_factor=1):
        self.asked.append((address, request, timeout_factor))
        return self._answer

    async def ask_namesrv(self, request, body=b"", *, accept=(), address=None):
        self.asked.append((address, request, 1))
        return self._answer


async def test_an_operation_builds_its_request_and_decodes_the_answer_of_any_asker():
    asker = Recorder(ConsumeStats(consume_tps=2.5).encode())
    assert (await group_progress(asker, "a:1", "billing", "orders")).consume_tps == 2.5
    [(address, request, timeout_factor)] = asker.asked
    assert (address, request.consumer_group, request.topic, timeout_factor) == ("a:1", "billing", "orders", 3)


async def test_without_an_address_any_name_server_is_asked():
    asker = Recorder(ClusterTable().encode())
    await cluster_table(asker)
    await cluster_table(asker, "a:1")
    assert [address for address, _, _ in asker.asked] == [None, "a:1"]
