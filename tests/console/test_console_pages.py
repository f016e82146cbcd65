import asyncio
import json
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import pytest

from sparrowmq.console.console_pages import PAGES, dark_of
from sparrowmq.console.pages import groups, overview
from tests.console.layout.seeing import seen
from tests.console.visiting import cookie_of


@pytest.mark.parametrize(("cookie", "expected"), [(None, None), ("", None), ("0", False), ("1", True), ("x", None)])
def test_light_or_dark_is_what_was_chosen_or_what_the_system_says(cookie, expected):
    assert dark_of(cookie) is expected


def test_every_page_has_an_address_and_each_place_of_the_menu_a_key_of_its_own():
    assert len({page.path for page in PAGES}) == len(PAGES) == len({id(page.draw) for page in PAGES})
    places = [page for page in PAGES if page.key]
    assert len({page.key for page in places}) == len(places) == 12
    assert not any("{" in page.path for page in places), "the menu has no place without its name"


@pytest.mark.slow
def test_the_frame_is_sent_while_the_cluster_does_not_answer(tmp_path):
    # A name server that is there, and never answers.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = ["console", "-n", f"127.0.0.1:{silent.getsockname()[1]}", "--port", "0"]
        with subprocess.Popen(
            [sys.executable, "-m", "sparrowmq", *words], stdout=subprocess.PIPE, text=True, cwd=tmp_path
        ) as process:
            assert process.stdout
            line = process.stdout.readline()
            page = opened(line.split()[4], password=line.split("password ")[1].split(",")[0])
            process.terminate()
            assert process.wait(30) == 0
        silent.settimeout(0)
        silent.accept()[0].close()
    assert json.dumps("Overview") in page
    assert "The console cannot show this page" not in page, "nobody has waited for the name server's silence to end"


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
async def test_what_was_typed_remains_when_a_browser_was_frozen_for_ten_seconds(visit):
    boss = await visit("boss")
    await boss.go("")
    field = boss.page.get_by_label("Search")
    await field.fill("half a name")
    await boss.page.evaluate("const end = Date.now() + 10500; while (Date.now() < end);")
    await asyncio.sleep(3)
    assert await field.input_value() == "half a name"


def opened(url: str, password: str) -> str:
    """The first page as the browser gets it."""

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    form = urllib.parse.urlencode({"name": "admin", "password": password}).encode()
    with pytest.raises(urllib.error.HTTPError) as answer:
        urllib.request.build_opener(NoRedirect).open(f"{url}login", form, timeout=30)
    with answer.value:
        cookie = answer.value.headers["set-cookie"].partition(";")[0]
    with urllib.request.urlopen(urllib.request.Request(url, headers={"cookie": cookie}), timeout=30) as page:
        return str(page.read(), "utf-8")


async def test_an_open_overview_does_not_read_the_tables_of_topics_again(look):
    view, draw = seen(look=look), as_any(overview.OVERVIEW_PAGE.draw)
    found = await draw.read(view)
    look.forget()
    await draw.refresh(view, found)
    assert look._topics is None


async def test_an_open_group_does_not_read_the_settings_of_groups_again(look):
    await look.admin.create_group("billing")
    view, draw = seen(look=look, args={"name": "billing"}), as_any(groups.GROUP_PAGE.draw)
    calls = [look.servers.calls]
    found = await draw.read(view)
    calls.append(look.servers.calls)
    await draw.refresh(view, found)
    calls.append(look.servers.calls)
    assert calls[2] - calls[1] < calls[1] - calls[0]


def as_any(draw: Any) -> Any:
    return draw


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("topics/no-such", ["no route for topic 'no-such'", "Search for no-such", "Topics"]),
        ("groups/no-such", ["there is no consumer group 'no-such'", "Consumers"]),
        (
            "cluster/no-such",
            ["there is no broker no-such; registered at the name server: broker-0, broker-1"],
        ),
        ("messages/orders/7F0000010000000000000000DEAD0000", ["there is no message", "it may have expired"]),
        ("messages/orders/no-id", ["no-id"]),
        ("messages/no-such/7F0000010000000000000000DEAD0000", ["no-such"]),
        ("groups/billing/members/no-such", ["no-such is not an online member of group billing; online: "]),
        ("no-such", ["the console has no page /no-such", "Topics"]),
        ("access/no-such", ["the console has no page /access/no-such"]),
    ],
)
async def test_what_does_not_exist_has_the_status_404_and_a_page_that_says_what_to_do(stage, path, words):
    request = urllib.request.Request(stage.url + path, headers={"cookie": cookie_header(stage)})
    with pytest.raises(urllib.error.HTTPError) as answer:
        await asyncio.to_thread(urllib.request.urlopen, request, timeout=30)
    with answer.value:
        page = str(answer.value.read(), "utf-8")
    assert answer.value.code == 404
    assert [each for each in words if json.dumps(each)[1:-1] not in page] == []


async def test_what_exists_has_the_status_200_and_the_dashboard_is_the_first_page(stage):
    for path, target in (("topics/orders", "topics/orders"), ("dashboard?way=out", "?way=out")):
        request = urllib.request.Request(stage.url + path, headers={"cookie": cookie_header(stage)})
        answer = await asyncio.to_thread(urllib.request.urlopen, request, timeout=30)
        with answer:
            assert (answer.status, answer.url) == (200, stage.url + target)


def cookie_header(stage):
    cookie = cookie_of(stage.url, "vera")
    return f"{cookie['name']}={cookie['value']}"
