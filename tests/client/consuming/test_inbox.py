import asyncio

import pytest

from sparrowmq.client.consuming.delivery import Inbox, InboxClosed


async def test_items_come_in_order_to_one_taker_each():
    inbox: Inbox[int] = Inbox()
    takers = [asyncio.ensure_future(inbox.take()) for _ in range(2)]
    await asyncio.sleep(0)
    inbox.extend([1, 2, 3])
    assert sorted(await asyncio.gather(*takers)) == [1, 2]
    assert await inbox.take() == 3


async def test_more_takes_only_what_is_there():
    inbox: Inbox[int] = Inbox()
    inbox.extend([1, 2, 3])
    assert inbox.take_nowait(2) == [1, 2]
    assert inbox.take_nowait(2) == [3]
    assert len(inbox) == 0


async def test_every_waiting_taker_gets_an_item_of_many():
    inbox: Inbox[int] = Inbox()
    takers = [asyncio.ensure_future(inbox.take()) for _ in range(20)]
    await asyncio.sleep(0)
    inbox.extend(range(20))
    assert sorted(await asyncio.wait_for(asyncio.gather(*takers), 5)) == list(range(20))


async def test_nothing_is_taken_here_from_a_closed_inbox():
    inbox: Inbox[int] = Inbox()
    inbox.extend([1])
    inbox.close()
    assert inbox.take_nowait(1) == []
    assert inbox.next_nowait() is None


async def test_takers_get_what_is_left_behind_the_next_item():
    inbox: Inbox[int] = Inbox()
    takers = [asyncio.ensure_future(inbox.take()) for _ in range(20)]
    await asyncio.sleep(0)
    inbox.extend(range(21))
    assert inbox.next_nowait() == 0
    assert sorted(await asyncio.wait_for(asyncio.gather(*takers), 5)) == list(range(1, 21))
    assert inbox.next_nowait() is None


async def test_a_cancelled_taker_leaves_its_item_to_another():
    inbox: Inbox[int] = Inbox()
    one, two = asyncio.ensure_future(inbox.take()), asyncio.ensure_future(inbox.take())
    await asyncio.sleep(0)
    inbox.extend([1])
    one.cancel()
    assert await asyncio.wait_for(two, 1) == 1
    with pytest.raises(asyncio.CancelledError):
        await one


async def test_closing_ends_all_takers_even_if_items_are_left():
    inbox: Inbox[int] = Inbox()
    waiting = asyncio.ensure_future(inbox.take())
    await asyncio.sleep(0)
    inbox.close()
    inbox.extend([1])
    with pytest.raises(InboxClosed):
        await waiting
    with pytest.raises(InboxClosed):
        await inbox.take()


async def test_items_can_be_withdrawn():
    inbox: Inbox[int] = Inbox()
    inbox.extend([1, 2, 3, 4])
    assert inbox.withdraw(lambda item: item % 2 == 0) == [2, 4]
    assert inbox.withdraw(lambda item: item > 9) == []
    assert [await inbox.take() for _ in range(2)] == [1, 3] and not len(inbox)


async def test_a_closed_inbox_can_be_opened():
    inbox: Inbox[int] = Inbox()
    inbox.close()
    assert inbox.is_closed
    inbox.open()
    inbox.extend([1])
    assert await inbox.take() == 1


async def test_it_counts_takers_that_wait_and_says_when_one_begins_to_wait_or_takes_the_last_item():
    calls: list[int] = []
    inbox: Inbox[int] = Inbox(lambda: calls.append(len(inbox)))
    takers = [asyncio.ensure_future(inbox.take()) for _ in range(3)]
    await asyncio.sleep(0)
    assert (inbox.waiting_takers, calls) == (3, [0, 0, 0])
    takers.pop().cancel()
    await asyncio.sleep(0)
    assert inbox.waiting_takers == 2
    inbox.extend([1])
    assert (inbox.waiting_takers, len(inbox)) == (1, 1)
    inbox.extend([2, 3])
    await asyncio.gather(*takers)
    assert (inbox.waiting_takers, inbox.next_nowait()) == (0, 3)
    assert len(calls) == 4
