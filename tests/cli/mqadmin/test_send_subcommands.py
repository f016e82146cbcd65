import os
import re
import subprocess
import sys
import threading

from sparrowmq.cli.mqadmin.message_subcommands import result_text, status_name
from sparrowmq.client.sending.send_result import SendResult, SendStatus
from sparrowmq.protocol.messages.message import MessageQueue


def test_a_result_is_described_as_java_does() -> None:
    result = SendResult("A", "B", MessageQueue("T", "b", 1), 7, SendStatus.FLUSH_DISK_TIMEOUT)
    assert result_text(result) == (
        "SendResult [sendStatus=FLUSH_DISK_TIMEOUT, msgId=A, offsetMsgId=B, "
        "messageQueue=MessageQueue [topic=T, brokerName=b, queueId=1], queueOffset=7]"
    )
    assert status_name(SendStatus.OK) == "SEND_OK"


def test_a_message_is_sent_to_a_queue_or_wherever_it_may_go(admin, topic):
    head, row = admin.ok(f"sendMessage -t {topic} -p hello -c TagA -k key -b broker-0 -i 1").splitlines()
    assert head == "#Broker Name                      #QID  #Send Result            #MsgId"
    assert row.split()[:3] == ["broker-0", "1", "SEND_OK"]
    assert "SEND_OK" in admin.ok(f"sendMessage -t {topic} -p hello")
    found = admin.ok(f"printMsgByQueue -t {topic} -a broker-0 -i 1 -p true -d true")
    assert "TAGS=TagA" in found and "KEYS=key" in found and found.endswith("BODY: hello\n")


def test_what_cannot_be_sent_is_told(admin, topic):
    said = admin(f"sendMessage -t {topic} -p x -i 1")
    assert (said.code, said.out) == (1, "Broker name must be set if the queue is chosen!")
    assert "The broker[broker-z] not exist" in admin(f"sendMessage -t {topic} -p x -b broker-z -i 0").err
    assert "The specified topic[a$] contains illegal characters" in admin("sendMessage -t a$ -p x").err


def test_a_send_to_a_named_broker_creates_the_topic(admin):
    rows = admin.ok("sendMessage -t BornByASend -p x -b broker-0 -i 0").splitlines()
    assert rows[1].split()[:3] == ["broker-0", "0", "SEND_OK"]
    assert "The broker[broker-z] not exist" in admin("sendMessage -t NotBorn -p x -b broker-z -i 0").err
    assert "queueId[77] is illegal" in admin("sendMessage -t BornToo -p x -b broker-0 -i 77").err
    assert "contains illegal characters" in admin("sendMessage -t a$ -p x -b broker-0 -i 0").err


def test_the_time_of_sends_is_measured(admin, topic):
    rows = admin.ok(f"checkMsgSendRT -t {topic} -a 3 -s 10").splitlines()
    assert [row.split()[1:3] for row in rows[1:4]] == [["0", "true"], ["1", "true"], ["0", "true"]]
    assert re.fullmatch(r"Avg RT: \d+\.\d\d", rows[4])
    rows = admin.ok("checkMsgSendRT -t NotYet -a 6").splitlines()  # made by the first send, with four queues
    assert [row.split()[1:3] for row in rows[1:7]] == [[str(each % 4), "true"] for each in range(6)]
    rows = admin.ok("sendMsgStatus -b broker-0 -c 2").splitlines()
    assert len(rows) == 2 and rows[0].startswith("rt=") and "SendResult [sendStatus=SEND_OK" in rows[0]
    for size in ("99999999999999999999999", "2147483648"):
        assert f'For input string: "{size}"' in admin(f"sendMsgStatus -b broker-0 -s {size}").err
    said = admin("clusterRT -c Nowhere -a 2")
    assert (said.code, said.out.splitlines()[-1]) == (1, "cluster [Nowhere] not exist")


def test_what_never_ends_shows_in_a_file_as_it_comes(admin):
    code = "from sparrowmq.cli.mqadmin.main import main; main()"
    words = ["clusterRT", "-a", "1", "-i", "60", "-n", admin.cluster.namesrv]
    program = [sys.executable, "-c", code, *words]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(program, env=environ, stdout=subprocess.PIPE, text=True) as process:
        limit = threading.Timer(15, process.kill)
        limit.start()
        assert process.stdout is not None and process.stdout.readline().startswith("#Cluster Name")
        limit.cancel()
        process.kill()
