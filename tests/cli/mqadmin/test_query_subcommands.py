import re
from pathlib import Path

import pytest

from sparrowmq.cli.mqadmin.message_subcommands import BODY_FOLDER
from sparrowmq.client.client import Client
from tests.interop.wire import SEND, Wire, send_fields


@pytest.fixture
def sent(admin, topic):
    (result,) = admin.send(topic, b"hello", tag="A", keys=["k1", "k2"])
    return result


def test_a_message_is_found_by_its_place_its_offset_its_id_and_its_key(admin, topic, sent):
    queue = sent.queue
    by_id = admin.ok(f"queryMsgById -i {sent.offset_msg_id}")
    assert by_id.startswith(f"OffsetID:            {sent.offset_msg_id}\nTopic:               {topic}\n")
    assert "Keys:                [k1 k2]\n" in by_id and by_id.endswith("\n\nWARN: No Consumer")
    path = re.search(r"Message Body Path:   (\S+)", by_id)
    assert path and Path(path[1]).read_bytes() == b"hello"
    line = f"queryMsgByOffset -t {topic} -b broker-0 -i {queue.queue_id} -o {sent.offset}"
    assert f"OffsetID:            {sent.offset_msg_id}\n" in admin.ok(line)
    by_unique = admin.ok(f"queryMsgByUniqueKey -t {topic} -i {sent.msg_id} -a")
    assert by_unique.startswith(f"Topic:               {topic}\n")
    rows = admin.ok(f"queryMsgByKey -t {topic} -k k2").splitlines()
    assert rows[1].split() == [sent.msg_id, str(queue.queue_id), str(sent.offset)]


def test_id_of_a_message_names_no_file_elsewhere(admin, topic, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    for unique_key in (str(elsewhere), f"../../..{elsewhere}"):
        with Wire(int(admin.broker.rpartition(":")[2])) as wire:
            fields = send_fields(topic, i=f"UNIQ_KEY\x01{unique_key}\x02")
            place = f"-b broker-0 -i 0 -o {wire.ask(SEND, fields, b'hostile').fields['queueOffset']}"
        said = admin.ok(f"queryMsgByOffset -t {topic} {place}")
        path = re.search(r"Message Body Path:   (.+)", said)
        assert path and Path(path[1]).parent == BODY_FOLDER and Path(path[1]).read_bytes() == b"hostile"
        Path(path[1]).unlink()
    assert not elsewhere.exists()


def test_what_is_not_there_is_told(admin, topic, sent):
    place = sent.offset_msg_id[:16] + f"{99_999_999:016X}"
    assert "MQBrokerException: CODE: 1  DESC: can not find message" in admin(f"queryMsgById -i {place}").err
    assert "CODE: 208  DESC: query message by id finished" in admin("queryMsgById -i nonsense").err
    assert "CODE: 208  DESC: query message by key finished" in admin(f"queryMsgByKey -t {topic} -k none").err
    assert admin.ok(f"queryMsgByOffset -t {topic} -b broker-0 -i 0 -o 99") == ""


@pytest.mark.parametrize(
    "unique_id",
    ["FD0000000000000000000000000000027B6F60E53B9373CFB2A70000", "7F0000017B448D186E0173CFA2780000"],
)
def test_a_unique_id_is_not_taken_for_an_address(admin, unique_id):
    said = admin(f"queryMsgById -i {unique_id}")
    assert "CODE: 208  DESC: query message by id finished, but no message." in said.err


def test_a_message_is_sent_again(admin, topic, sent):
    said = admin.ok(f"queryMsgById -i {sent.offset_msg_id} -s true")
    assert said.startswith(f"prepare resend msg. originalMsgId={sent.offset_msg_id}SendResult [sendStatus=SEND_OK")
    assert len(admin.ok(f"queryMsgByKey -t {topic} -k k1").splitlines()) == 3
    assert admin.ok(f"queryMsgById -i {sent.offset_msg_id} -s false") == ""


def test_a_trace_shows_who_sent(admin, topic):
    admin.ok("updateTopic -b {broker} -t RMQ_SYS_TRACE_TOPIC_2 -r 1 -w 1")

    async def send():
        async with Client(admin.cluster.namesrv, trace="RMQ_SYS_TRACE_TOPIC_2") as mq:
            return await mq.send(topic, b"traced")

    sent = admin.cluster.run(send())
    rows = admin.ok(f"queryMsgTraceById -i {sent.msg_id} -t RMQ_SYS_TRACE_TOPIC_2").splitlines()
    assert rows[0].split() == ["#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status"]
    assert rows[1].split()[0] == "Pub" and rows[1].split()[-1] == "success"


def test_a_group_without_members_is_not_online_in_the_track_of_a_message(admin, topic, sent):
    admin.ok("updateSubGroup -b {broker} -g absent")
    admin.ok("updateTopic -b {broker} -t %RETRY%absent -r 1 -w 1")
    admin.ok(f"resetOffsetByTime -g absent -t {topic} -s now")
    shown = admin.ok(f"queryMsgByUniqueKey -t {topic} -i {sent.msg_id}")
    assert "MessageTrack [consumerGroup=absent, trackType=NOT_ONLINE, exceptionDesc=CODE:206 DESC:" in shown
