"""Sharing out descriptors, and raising the limit of a process."""

import subprocess
import sys

import pytest

from sparrowmq import descriptors
from sparrowmq.descriptors import Share, share
from sparrowmq.errors import ConfigError


@pytest.mark.parametrize(
    ("limit", "with_store", "ports", "expected"),
    [
        (1024, True, 2, Share(connections=288, queue_files=192, backlog=32)),
        (1024, False, 2, Share(connections=448, queue_files=0, backlog=32)),
        (256, True, 1, Share(connections=108, queue_files=36, backlog=16)),
        (1024, True, 1, Share(connections=576, queue_files=192, backlog=64)),
        (1024, False, 1, Share(connections=896, queue_files=0, backlog=64)),
        (20_000, True, 1, Share(connections=12_316, queue_files=4096, backlog=1024)),
        (1 << 20, True, 1, Share(connections=16_000, queue_files=4096, backlog=1024)),
        (1 << 20, False, 1, Share(connections=16_000, queue_files=0, backlog=1024)),
    ],
)
def test_descriptors_are_shared_out(limit, with_store, ports, expected):
    assert share(limit, with_store, ports) == expected


@pytest.mark.parametrize("ports", [1, 2])
@pytest.mark.parametrize("limit", range(256, 4096, 61))
def test_all_shares_together_and_the_log_fit_the_limit(limit, ports):
    given = share(limit, with_store=True, ports=ports)
    assert ports * (given.connections + given.backlog) + given.queue_files + limit // 8 + 64 <= limit
    assert ports * given.connections >= 100 and given.queue_files >= 30


def test_too_few_are_refused_with_what_to_do():
    with pytest.raises(ConfigError, match=r"may open 255 files.*ulimit -n 256"):
        share(255, with_store=False)


def test_the_limit_is_raised_to_what_the_system_allows():
    program = (
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (300, 700))\n"
        "from sparrowmq import descriptors\n"
        "print(descriptors.limit(), descriptors.raise_limit(), descriptors.raise_limit(), descriptors.limit())"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["300", "700", "700", "700"]


def test_this_process_has_a_limit():
    assert descriptors.limit() >= descriptors.FEWEST
