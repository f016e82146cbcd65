"""Taking a port, and giving it back."""

import asyncio
import resource

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.remoting.listener import Listener


async def test_a_taken_port_is_told_with_the_setting_to_change() -> None:
    first = Listener("127.0.0.1", 0)
    first.bind()
    first.bind()
    assert first.port > 0 and not first.is_open
    await first.open(asyncio.Protocol, 1)
    with pytest.raises(ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{first.port} .*another otherPort"):
        Listener("127.0.0.1", first.port, "otherPort").bind()
    first.close()
    await first.wait_until_closed()


async def test_a_process_without_a_descriptor_is_told_to_raise_its_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))  # which refuses root too
    try:
        with pytest.raises(ConfigError, match=r"Too many open files\); raise `ulimit -n`"):
            Listener("127.0.0.1", 0).bind()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_port_that_was_only_bound_is_given_back() -> None:
    door = Listener("127.0.0.1", 0)
    door.bind()
    door.close()
    again = Listener("127.0.0.1", door.port)
    again.bind()
    again.close()


async def test_a_closed_door_takes_nobody() -> None:
    door = Listener("127.0.0.1", 0)
    await door.open(asyncio.Protocol, 1)
    assert door.is_open
    door.close()
    await door.wait_until_closed()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", door.port)
