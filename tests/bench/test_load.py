"""Both load generators, against a listener that answers as a broker does and counts what it was asked."""

import json
import re
import socket
import struct
import threading
from collections import Counter
from contextlib import suppress

import pytest

from bench import load
from bench.load import LoadFailed, build, run_load
from bench.python_load import python_load
from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties

RECORD = struct.pack(">I", 100) + b"r" * 96
NO_COMPILER = pytest.mark.skipif(build() is None, reason="no C compiler, or not Linux")
GENERATORS = [pytest.param(run_load, marks=NO_COMPILER, id="c"), pytest.param(python_load, id="python")]


class Answers:
    """A broker of forty lines: stores nothing, holds 320 records a queue, refuses what `code` says."""

    def __init__(self, code=0):
        self.code = code
        self.queues: Counter[str] = Counter()
        self.keys, self.offsets, self.bodies = set(), [], set()
        self.halves, self.commits = [], []  # where half messages lie, in the log and in their queue
        self.clients, self.most_at_once = 0, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self):
        self._listener.close()

    def _serve(self):
        with suppress(OSError):  # the end of the listener
            while True:
                client, _ = self._listener.accept()
                self.clients += 1
                threading.Thread(target=self._converse, args=(client,), daemon=True).start()

    def _converse(self, client):
        # A generator leaves with requests still in flight.
        with suppress(ConnectionError), client, client.makefile("rwb") as stream:
            while size := stream.read(4):
                frame = stream.read(int.from_bytes(size, "big"))
                header_end = 4 + int.from_bytes(frame[:4], "big")
                with suppress(BlockingIOError):
                    further = client.recv(1 << 16, socket.MSG_PEEK | socket.MSG_DONTWAIT)
                    self.most_at_once = max(self.most_at_once, further.count(b'"extFields"') + 1)
                stream.write(self._answer(json.loads(frame[4:header_end]), frame[header_end:]))
                stream.flush()

    def _answer(self, header, body):
        fields, reply_body, reply_fields = header["extFields"], b"", {}
        if header["code"] == 310:
            self.queues[fields["e"]] += 1
            self.keys |= set(re.findall("UNIQ_KEY\x01([0-9A-F]{32})\x02", fields["i"]))
            self.bodies.add(len(body))
            place = (len(self.keys) * 300, len(self.keys))
            if "TRAN_MSG\x01true\x02" in fields["i"]:
                self.halves.append(place)
            reply_fields = {"msgId": f"7F00000100002A9F{place[0]:016X}", "queueOffset": str(place[1])}
        elif header["code"] == 320:
            sent = batch.entries(Entry("bench", 0, b"", Properties(fields["i"]), 0, bytes(8)), body, batch.places(body))
            self.queues[fields["e"]] += len(sent)
            self.keys |= {message.properties.unique_key for message in sent}
            self.bodies |= {(len(sent), len(message.body)) for message in sent}
            assert fields["m"] == "true" and all(message.properties.get("TAGS") == "TagA" for message in sent)
        elif header["code"] == 37:
            assert (fields["commitOrRollback"], fields["producerGroup"]) == ("8", "bench-producer")
            self.commits.append((int(fields["commitLogOffset"]), int(fields["tranStateTableOffset"])))
        else:
            self.offsets.append((int(fields["queueId"]), int(fields["queueOffset"])))
            reply_body, reply_fields = RECORD * 32, {"maxOffset": "320"}
        reply = {"code": self.code, "extFields": reply_fields, "flag": 1, "opaque": header["opaque"]}
        text = json.dumps(reply, separators=(",", ":")).encode()
        return struct.pack(">II", 4 + len(text) + len(reply_body), len(text)) + text + reply_body


@pytest.fixture
def answers():
    server = Answers()
    yield server
    server.close()


@pytest.mark.parametrize("generator", GENERATORS)
def test_send_goes_round_the_queues_with_a_key_of_its_own_each(generator, answers):
    figures = generator("send", answers.port, topic="T", queues=3, body=50, window=8, count=300, warmup=30)
    assert 290 <= figures["messages"] <= 308 and figures["errors"] == 0
    assert 0 < figures["p50_us"] <= figures["p99_us"] <= figures["max_us"] * 1.04
    total = sum(answers.queues.values())
    assert total >= 330 and len(answers.keys) == total and answers.bodies == {50}
    assert set(answers.queues) == {"0", "1", "2"} and max(answers.queues.values()) <= total / 3 + 1


@pytest.mark.parametrize("generator", GENERATORS)
def test_pull_walks_every_queue_and_begins_again(generator, answers):
    figures = generator("pull", answers.port, topic="T", queues=2, window=4, count=2000)
    assert figures["messages"] >= 2000 and figures["messages"] % 32 == 0
    asked = Counter(answers.offsets)
    assert set(asked) == {(queue, offset) for queue in (0, 1) for offset in range(0, 320, 32)}
    assert min(asked.values()) >= 2


@NO_COMPILER
def test_a_transaction_is_a_half_message_and_its_commit(answers):
    figures = run_load("transact", answers.port, topic="T", body=50, window=8, count=300, warmup=30)
    assert figures["mode"] == "transact" and 290 <= figures["messages"] <= 308 and figures["errors"] == 0
    assert len(answers.commits) >= 330 and set(answers.commits) <= set(answers.halves)
    assert len(set(answers.commits)) == len(answers.commits) and answers.bodies == {50}


@NO_COMPILER
def test_many_connections_have_one_request_in_flight_each(answers):
    figures = run_load("send", answers.port, topic="T", window=1, connections=7, count=200, warmup=50)
    assert 190 <= figures["messages"] <= 210 and figures["errors"] == 0
    assert answers.clients == 7 and answers.most_at_once <= 1


def test_the_generator_in_python_takes_no_more_than_one_connection(answers):
    with pytest.raises(RuntimeError, match="C compiler"):
        python_load("send", answers.port, window=1, connections=2, count=1)


@pytest.mark.parametrize("generator", GENERATORS)
def test_refusals_are_counted_and_the_first_is_told(generator):
    server = Answers(code=14)
    figures = generator("send", server.port, topic="T", window=2, count=50)
    server.close()
    assert figures["messages"] == 0 and figures["errors"] >= 50 and "14" in figures["error"]


@NO_COMPILER
def test_a_broker_that_is_not_there_fails_with_its_address():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(LoadFailed, match=f"127.0.0.1:{port}"):
        run_load("send", port, count=1)


@NO_COMPILER
def test_an_unknown_option_is_named():
    with pytest.raises(LoadFailed, match="no option --colour"):
        run_load("send", 1, colour="blue")


def test_without_a_compiler_python_does_it(monkeypatch, answers):
    monkeypatch.setattr(load, "build", lambda: None)
    assert run_load("send", answers.port, topic="T", window=1, count=5)["generator"] == "python"


@NO_COMPILER
def test_batches_have_so_many_messages_with_a_unique_key_each(answers):
    figures = run_load("send", answers.port, batch=5, queues=2, window=3, body=9, count=1000)
    assert answers.bodies == {(5, 9)} and set(answers.queues) == {"0", "1"}
    assert len(answers.keys) == sum(answers.queues.values()) >= figures["messages"] >= 1000
