"""The search itself: its requests are frames, its rig measures, and what it finds can be repeated."""

from __future__ import annotations

import json
import random
from functools import partial

import pytest

from sparrowmq.protocol.requests.request_table import BY_CODE
from sparrowmq.protocol.wire import codec
from sparrowmq.protocol.wire.frame import FrameReader
from tests.fuzz.cost.genes import CODES, frames_of, mutated, seed_of, size_of
from tests.fuzz.cost.rig import Cost, Rig
from tests.fuzz.cost.search import Corpus, Dear, Search

QUEUES = ["object", {"consumerGroup": ["text", [[1, "g"]]], "clientId": ["text", [[1, "c"]]], "mqSet": ["items", 2, [
    "object", {"topic": ["text", [[1, "Fuzz"]]], "brokerName": ["text", [[1, "b"]]], "queueId": ["lit", 0]},
]]}]  # fmt: skip


def lock(queues):
    gene = json.loads(json.dumps({"code": 41, "fields": {}, "body": QUEUES}))
    gene["body"][1]["mqSet"][1] = queues
    return [gene]


@pytest.mark.parametrize("code", CODES)
def test_the_seed_of_each_code_is_a_request_that_can_be_decoded(code):
    [whole] = frames_of([seed_of(random.Random(code), code)])
    [frame] = FrameReader().feed(whole)
    command = codec.decode(*frame)
    assert command.code == code
    header = BY_CODE[code].header
    assert header is None or command.header(header) is not None


def test_changes_are_the_same_for_the_same_seed_and_can_be_kept():
    made = []
    for rng in (random.Random(3), random.Random(3)):
        genes = [seed_of(rng, 34)]
        for _ in range(40):
            genes = mutated(rng, genes, partial(seed_of, rng, 310))
        made.append(genes)
    assert made[0] == made[1] == json.loads(json.dumps(made[0]))
    if size_of(made[0]) < 1 << 20:
        assert frames_of(made[0]) == frames_of(made[1])


def test_the_rig_measures_more_work_as_more(tmp_path):
    told = []
    with Rig() as rig:
        small, large = (min(rig.measure(frames_of(lock(count))) for _ in range(3)) for count in (2, 4000))
        search = Search(7, tmp_path, lambda dear, path: told.append(path), codes=(41,))
        search.step(rig)
    assert large.size > 100 * small.size
    assert large.cpu_s > 3 * small.cpu_s
    assert 0 < small.step_s <= small.cpu_s
    assert search.requests > 0


def test_a_case_is_reported_if_it_breaks_a_limit_and_again_only_if_it_is_much_worse(tmp_path):
    fine, slow, slower = (Dear(lock(2), Cost(9000, step, step, "x")) for step in (0.004, 0.006, 0.06))
    assert (fine.breaks, len(slow.breaks)) == ([], 1)
    assert "a step of 6.0 ms" in str(slow) and "us a byte" in str(slower)
    corpus = Corpus()
    assert corpus.is_news(slow)
    corpus.note(slow)
    assert not corpus.is_news(slow) and corpus.is_news(slower)
