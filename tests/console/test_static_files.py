import asyncio
import gzip

import pytest

from sparrowmq.console.static_files import Shelf

SCRIPT = b"const answer = 42;\n" * 10_000
FOREVER = "public, max-age=31536000, immutable"


class Origin:
    """What stands for NiceGUI: it answers in pieces, and counts."""

    def __init__(self, status=200, kind="text/javascript", control=FOREVER, body=SCRIPT):
        self.asked = []
        self._status, self._kind, self._control, self._body = status, kind, control, body

    async def __call__(self, scope, receive, send):
        self.asked.append(dict(scope["headers"]))
        headers = {
            "content-type": self._kind,
            "cache-control": self._control,
            "content-length": str(len(self._body)),
        }
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": self._status, "headers": raw})
        await receive()  # the request
        for at in range(0, len(self._body), 65536):
            if await self._is_left(receive):
                return
            await send({"type": "http.response.body", "body": self._body[at : at + 65536], "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _is_left(self, receive):
        """Whether the browser has gone, as Starlette looks at it between two pieces."""
        try:
            async with asyncio.timeout(0.001):
                return (await receive())["type"] == "http.disconnect"
        except TimeoutError:
            return False


async def get(shelf, path="/_nicegui/3/static/vue.js", query=b"", stays=False, **headers):
    """Status, headers and body of an answer."""
    told = []

    async def send(message):
        told.append(message)

    async def receive():
        if stays:
            return {"type": "http.request"}
        return {"type": "http.disconnect"}  # it goes to another page at once

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": query, "headers": raw}
    await shelf(scope, receive, send)
    body = b"".join(each.get("body", b"") for each in told[1:])
    return told[0]["status"], {name.decode(): value.decode() for name, value in told[0]["headers"]}, body


async def test_what_never_changes_is_asked_for_and_compressed_once():
    origin = Origin()
    shelf = Shelf(origin)
    answers = [await get(shelf, accept_encoding="gzip, br") for _ in range(3)]
    assert len(origin.asked) == 1 and b"accept-encoding" not in origin.asked[0]
    for status, headers, body in answers:
        assert (status, headers["content-encoding"], headers["content-type"]) == (
            200,
            "gzip",
            "text/javascript",
        )
        assert headers["content-length"] == str(len(body)) and len(body) < 10_000
        assert gzip.decompress(body) == SCRIPT and headers["vary"].lower() == "accept-encoding"


async def test_who_does_not_know_gzip_gets_it_as_it_is():
    shelf = Shelf(Origin())
    await get(shelf, accept_encoding="gzip")
    for _ in range(2):
        _, headers, body = await get(shelf)
        assert body == SCRIPT and "content-encoding" not in headers


async def test_pictures_and_fonts_are_not_compressed():
    _, headers, body = await get(Shelf(Origin(kind="font/woff2")), accept_encoding="gzip")
    assert body == SCRIPT and "content-encoding" not in headers


@pytest.mark.parametrize(
    ("origin", "path", "more"),
    [
        (Origin(status=404), "/_nicegui/3/static/x.js", {}),
        (Origin(control="no-store"), "/_nicegui/3/dynamic_resources/x", {}),
        (Origin(), "/_nicegui/3/static/vue.js", {"range": "bytes=0-9"}),
        (Origin(), "/_nicegui/3/static/vue.js", {"if_none_match": '"x"'}),
        (Origin(), "/_nicegui/3/static/vue.js", {"query": b"a=1"}),
    ],
)
async def test_nothing_else_is_kept(origin, path, more):
    shelf = Shelf(origin)
    for _ in range(2):
        _, _, body = await get(shelf, path, stays=True, **more)
        assert body == SCRIPT
    assert len(origin.asked) == 2


async def test_half_an_answer_is_never_kept():
    async def torn(scope, receive, send):
        headers = [(b"content-length", b"10"), (b"cache-control", FOREVER.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"abc", "more_body": True})

    shelf = Shelf(torn)
    with pytest.raises(RuntimeError, match="not served whole"):
        await get(shelf)
    assert not shelf._kept


async def test_the_shelf_is_bounded():
    origin = Origin(kind="font/woff2", body=b"x" * (3 << 20))
    shelf = Shelf(origin)
    for number in range(5):
        await get(shelf, f"/_nicegui/3/static/{number}.woff2")
    assert shelf._size <= 8 << 20
    await get(shelf, "/_nicegui/3/static/4.woff2")
    assert len(origin.asked) == 5, "the newest is still there"
    await get(shelf, "/_nicegui/3/static/0.woff2")
    assert len(origin.asked) == 6
