"""Sharing out descriptors, and raising the limit of a process."""

import subprocess
import sys

import pytest

from sparrowmq.core import descriptors
from sparrowmq.core.descriptors import Share, divide
from sparrowmq.errors import ConfigError


@pytest.mark.parametrize(
    ("limit", "with_store", "ports", "expected"),
    [
        (1024, True, 2, Share(connections=228, queue_files=152, backlog=32)),
        (1024, False, 2, Share(connections=424, queue_files=0, backlog=32)),
        (256, True, 1, Share(connections=72, queue_files=24, backlog=16)),
        (1024, True, 1, Share(connections=432, queue_files=144, backlog=64)),
        (1024, False, 1, Share(connections=848, queue_files=0, backlog=64)),
        (20_000, True, 1, Share(connections=11_445, queue_files=3815, backlog=1024)),
        (1 << 20, True, 1, Share(connections=16_000, queue_files=4096, backlog=1024)),
        (1 << 20, False, 1, Share(connections=16_000, queue_files=0, backlog=1024)),
    ],
)
def test_descriptors_are_shared_out(limit, with_store, ports, expected):
    assert divide(limit, with_store, ports) == expected


@pytest.mark.parametrize("ports", [1, 2])
@pytest.mark.parametrize("limit", range(256, 4096, 61))
def test_all_shares_together_and_the_log_fit_the_limit(limit, ports):
    given = divide(limit, with_store=True, ports=ports)
    ports_for_clients = ports * (given.connections + given.backlog) + given.backlog  # with the second door
    small = [descriptors.MAX_METRICS_CONNECTIONS, descriptors.MAX_SLAVES, *[descriptors.SMALL_BACKLOG] * 2]
    small_ports = sum(descriptors.small_port_limit(most, limit) for most in small)
    assert ports_for_clients + small_ports + given.queue_files + limit // 8 + 64 <= limit
    assert ports * given.connections >= 70 and given.queue_files >= 24


def test_too_few_are_refused_with_what_to_do():
    with pytest.raises(ConfigError, match=r"may open 255 files.*ulimit -n 256"):
        divide(255, with_store=False)


def test_the_limit_is_raised_to_what_the_system_allows():
    program = (
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (300, 700))\n"
        "from sparrowmq.core import descriptors\n"
        "print(descriptors.limit(), descriptors.raise_limit(), descriptors.raise_limit(), descriptors.limit())"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["300", "700", "700", "700"]


def test_this_process_has_a_limit():
    assert descriptors.limit() >= descriptors.MIN_DESCRIPTORS
