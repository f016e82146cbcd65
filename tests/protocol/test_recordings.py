"""All that was recorded from Apache and from the C++ client can be read, and what we would write instead is the same.

`tests/golden` holds the recordings; this file leads them through command, headers and bodies.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from sparrowmq.loop.slices import at_once
from sparrowmq.protocol import signature
from sparrowmq.protocol.messages.batch import decode as decode_batch
from sparrowmq.protocol.messages.batch import encode as encode_batch
from sparrowmq.protocol.messages.compression import decompress
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.properties import parse as parse_properties
from sparrowmq.protocol.requests import bodies, client_bodies, offset_bodies
from sparrowmq.protocol.requests.headers import SendBatchMessage, SendMessage, SendMessageV2
from sparrowmq.protocol.requests.namesrv_headers import RegisterBroker
from sparrowmq.protocol.requests.registration_bodies import RegisterBrokerBody, sum_in_steps
from sparrowmq.protocol.requests.request_table import BY_CODE
from sparrowmq.protocol.wire import codec, json
from sparrowmq.protocol.wire.body import Body
from sparrowmq.protocol.wire.command import Command, language_name
from sparrowmq.protocol.wire.header import text_of
from tests.golden import Frame, frames, scenarios

# Fields that any request may carry and no handler needs: signing, and hints between 5.x's own parts.
EXTRA = {"AccessKey", "OnsChannel", "Signature", "ReqT", "bname", "indexType"}

REQUEST_BODIES: dict[int, type[Body]] = {
    34: client_bodies.Heartbeat,
    41: client_bodies.LockQueues,
    42: client_bodies.LockQueues,
    46: client_bodies.ClientConfigCheck,
    200: bodies.GroupConfig,
    220: offset_bodies.ResetOffsets,
    322: bodies.DataVersion,
}
REPLY_BODIES: dict[int, type[Body]] = {
    28: bodies.KVTable,
    38: client_bodies.ConsumerList,
    41: client_bodies.LockedQueues,
    105: bodies.TopicRoute,
    106: bodies.ClusterTable,
    202: offset_bodies.TopicStats,
    203: client_bodies.ConsumerConnections,
    204: client_bodies.ProducerConnections,
    206: bodies.TopicList,
    208: offset_bodies.ConsumeStats,
    222: offset_bodies.ResetOffsets,
    300: bodies.GroupList,
    307: client_bodies.ConsumerRunning,
    322: bodies.DataVersion,
}


def recorded() -> Iterator[tuple[str, Frame, Command]]:
    for scenario in scenarios():
        for frame in frames(scenario):
            serializer = frame.data[4]
            yield (
                f"{scenario} frame {frame.number}",
                frame,
                codec.decode(serializer, frame.header, frame.body),
            )


ALL = list(recorded())


def asked(frame: Frame) -> int:
    code = frame.code if frame.is_request else frame.answers
    assert code is not None
    return code


def with_bodies(kinds: dict[int, type[Body]], requests: bool) -> Iterator[tuple[str, type[Body], bytes]]:
    for where, frame, found in ALL:
        kind = kinds.get(asked(frame))
        if kind and frame.is_request == requests and found.body and (requests or not found.code):
            yield where, kind, found.body


def test_there_is_something_to_read() -> None:
    assert len(ALL) > 1000
    assert {asked(frame) for _, frame, _ in ALL} >= {10, 11, 34, 36, 38, 41, 103, 105, 106, 307, 310, 320}


def test_every_header_is_read_and_no_field_of_it_is_unknown() -> None:
    for where, frame, found in ALL:
        row = BY_CODE[asked(frame)]
        kind = row.header if frame.is_request else row.reply
        if kind is None or (not frame.is_request and found.code):
            continue
        sent, header = found.ext_fields(), found.header(kind)
        unknown = sent.keys() - set(kind.__struct_encode_fields__) - EXTRA
        assert not unknown, f"{where}: {row.name} has {unknown}"
        read = header.ext_fields()
        for name in sent.keys() - EXTRA:
            assert same_value(sent[name], read[name]), f"{where}: {row.name} {name}"


def same_value(sent: str, read: str) -> bool:
    return sent == read or (sent, read) in {("0", "false"), ("1", "true")}


def test_the_fields_that_every_command_has_are_read() -> None:
    for where, frame, found in ALL:
        assert (found.code, found.opaque, found.flag) == (frame.code, frame.opaque, frame.flag), where
        assert found.is_reply is not frame.is_request, where
        assert isinstance(found.version, int) and language_name(found.language) in ("JAVA", "CPP"), where


@pytest.mark.parametrize(("kinds", "requests"), [(REQUEST_BODIES, True), (REPLY_BODIES, False)])
def test_every_body_is_read_without_losing_a_member(kinds: dict[int, type[Body]], requests: bool) -> None:
    seen = set()
    for where, kind, raw in with_bodies(kinds, requests):
        if kind is client_bodies.Heartbeat and where.startswith("cpp"):
            continue  # it has places instead of names: see below
        seen.add(kind)
        ours = kind.decode(raw).encode(bare_integers=True)
        assert plain(json.loads(ours)) == plain(json.loads(raw)), where
    assert seen == set(kinds.values())


def plain(value: Any) -> Any:
    """The value as far as it has a meaning: sets come in any order, and what is absent may be null or empty."""
    if isinstance(value, dict):
        return {str(key): plain(member) for key, member in value.items() if member not in (None, [])}
    return sorted(map(plain, value), key=str) if isinstance(value, list) else text_of(value)


def test_heartbeats_of_the_cpp_client_are_read_as_those_of_java() -> None:
    groups = [
        group
        for where, kind, raw in with_bodies({34: client_bodies.Heartbeat}, True)
        if where.startswith("cpp")
        for group in client_bodies.Heartbeat.decode(raw).consumer_data_set
    ]
    assert {group.group_name for group in groups} >= {"CID-test", "CID-fail"}
    assert {group.consume_type for group in groups} <= {"CONSUME_PASSIVELY", "CONSUME_ACTIVELY"}
    assert {group.message_model for group in groups} == {"CLUSTERING", "BROADCASTING"}
    wanted = {text for group in groups for each in group.subscription_data_set for text in each.tags}
    assert wanted == {"TagA", "TagB"}
    assert all(len(each.codes) == len(each.tags) for group in groups for each in group.subscription_data_set)


def test_what_java_wrote_is_written_alike_to_the_byte() -> None:
    """Members without sets and maps: their order is settled."""
    settled = {38, 41, 42, 322}
    for where, frame, found in ALL:
        kind = (REQUEST_BODIES if frame.is_request else REPLY_BODIES).get(asked(frame))
        if kind and asked(frame) in settled and found.body and not found.code * (not frame.is_request):
            assert kind.decode(found.body).encode() == found.body.rstrip(b"\n"), where


def test_registrations_are_read_in_both_forms() -> None:
    seen = 0
    for where, frame, found in ALL:
        if frame.code == 103 and frame.is_request:
            header = found.header(RegisterBroker)
            packed = not found.body.startswith(b"{")
            body = (
                at_once(RegisterBrokerBody.unpack_in_steps(found.body))
                if packed
                else RegisterBrokerBody.decode(found.body)
            )
            assert "TBW102" in body.topics.topic_config_table, where
            assert body.topics.topic_config_table["TBW102"].perm == 7, where
            assert header.body_crc32 in (0, at_once(sum_in_steps(found.body))), where
            if packed:
                for topic in body.topics.topic_config_table.values():
                    topic.attributes = None  # never packed: a name server of 4.9 could not read the topic
                assert at_once(RegisterBrokerBody.unpack_in_steps(at_once(body.pack_in_steps()))) == body, where
            seen += 1
    assert seen >= 4


def sends() -> Iterator[tuple[str, SendMessage | SendMessageV2, bytes]]:
    for where, frame, found in ALL:
        if frame.is_request and frame.code in (10, 310, 320):
            header: SendMessage | SendMessageV2
            if frame.code == 10:
                header = found.header(SendMessage)
            else:
                header = found.header(SendBatchMessage if frame.code == 320 else SendMessageV2)
            yield where, header, found.body


@pytest.mark.covers("S-PROD-18")
def test_batches_are_taken_apart_and_put_together_again() -> None:
    counts = []
    for where, header, body in sends():
        if header.batch or isinstance(header, SendBatchMessage):
            parts = decode_batch(body)
            counts.append(len(parts))
            assert encode_batch(parts) == body, where
            assert all(parse_properties(part.properties)["UNIQ_KEY"] for part in parts), where
    assert len(counts) >= 4 and set(counts) == {3}


@pytest.mark.covers("S-PROD-10")
def test_compressed_bodies_are_inflated() -> None:
    packed = [(where, header, body) for where, header, body in sends() if header.sys_flag & SysFlag.COMPRESSED]
    assert len(packed) >= 3
    for where, header, body in packed:
        assert len(decompress(body, header.sys_flag)) > 10 * len(body), where


def test_signatures_are_verified() -> None:
    seen = 0
    for where, _, found in ALL:
        fields = found.ext_fields()
        if "Signature" in fields:
            secret = "sk" if fields["AccessKey"] else ""
            assert signature.SigningKey(secret).has_signed(fields, found.body), where
            assert not signature.SigningKey(secret).has_signed(fields, found.body + b"x"), where
            seen += 1
    assert seen > 50
