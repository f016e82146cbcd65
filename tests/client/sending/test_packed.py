from sparrowmq.client.sending.send_request import SendContent, batch_properties
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.messages.message import MessageQueue

QUEUE = MessageQueue("t", "a", 3)


def test_a_request_says_where_to_and_what_a_broker_makes_a_new_topic_of():
    packed = SendContent("t", b"body", "TAGS\x01A\x02", 1, 7, reconsume_times=2, max_reconsume_times=16)
    request = packed.request("g", QUEUE, 5000)
    assert request.code == RequestCode.SEND_MESSAGE_V2
    assert (request.producer_group, request.topic, request.queue_id, request.broker_name) == (
        "g",
        "t",
        3,
        "a",
    )
    assert (request.default_topic, request.default_topic_queue_nums) == ("TBW102", 4)
    assert (request.born_timestamp, request.sys_flag, request.flag) == (5000, 1, 7)
    assert (request.properties, request.reconsume_times) == ("TAGS\x01A\x02", 2)
    assert (request.max_reconsume_times, request.batch) == (16, False)


def test_a_batch_is_a_request_of_another_code():
    request = SendContent("t", b"", batch_properties(wait_stored=False), is_batch=True).request("g", QUEUE, 1)
    assert (request.code, request.batch) == (RequestCode.SEND_BATCH_MESSAGE, True)
    assert request.properties == "WAIT\x01false\x02"
