"""A viewer attacks the page of an administrator, whose ids the viewer knows, with real browsers and sockets."""

import json

import pytest
from nicegui import Client, core, ui
from starlette.requests import Request

from sparrowmq.console.sessions import BoundSockets, Session, may_use
from sparrowmq.console.users import Role

pytestmark = pytest.mark.asyncio(loop_scope="session")

# Opens a socket of the visitor, lets it say something, and returns the server's answers until the given one.
_TALK = """async ([address, words, until]) => {
    const socket = new WebSocket(address.replace("http", "ws"));
    const answers = [];
    return await new Promise((resolve, reject) => {
        socket.onerror = () => reject("refused");
        socket.onclose = () => resolve(answers);
        socket.onmessage = event => {
            answers.push(event.data);
            if (event.data.startsWith("0")) socket.send("40");
            if (event.data.startsWith("40")) words.forEach(each => socket.send(each));
            if (event.data.startsWith(until)) resolve(answers);
        };
    });
}"""


def press_of(frames):
    return [json.loads(each[2:])[1] for each in frames if each.startswith('42["event"')]


async def pressed_delete(visit):
    """An administrator's page, and the message of its socket that presses the button Delete."""
    boss = await visit("boss")
    frames: list[str] = []
    boss.page.on("websocket", lambda socket: socket.on("framesent", lambda sent: frames.append(str(sent))))
    await boss.go("topics/orders")
    before = len(frames)
    await boss.press("Delete")
    await boss.sees("Nothing can restore them")
    message = press_of(frames[before:])[0]
    await boss.press("Cancel")
    await boss.page.get_by_text("Nothing can restore them").wait_for(state="detached")
    return boss, message


async def is_untouched(boss):
    """Whether no dialog was opened, as seen after one that the administrator opens."""
    await boss.press("Change")
    await boss.sees("Write queues on each broker")
    return await boss.page.get_by_text("Nothing can restore them").count() == 0


@pytest.mark.slow
async def test_a_socket_cannot_press_a_button_of_another_visitors_page(visit):
    boss, message = await pressed_delete(visit)
    vera = await visit("vera")
    await vera.go("topics/orders")
    send = "message => window.socket.emitWithAck('event', message)"
    assert await vera.page.evaluate(send, message) is False
    assert await is_untouched(boss)
    await boss.press("Cancel")
    await boss.page.get_by_text("Write queues on each broker").wait_for(state="detached")
    await boss.page.evaluate(send, message)
    await boss.sees("Nothing can restore them")


@pytest.mark.slow
async def test_a_socket_cannot_take_part_in_another_visitors_page(visit, stage):
    boss, message = await pressed_delete(visit)
    vera = await visit("vera")
    await vera.go("topics/orders")
    tab = await boss.page.evaluate("new URLSearchParams(window.socket.io.opts.query).get('tab_id')")
    wanted = {"client_id": message["client_id"], "tab_id": tab, "document_id": "d", "next_message_id": 0}
    words = [f'421["handshake",{json.dumps(wanted)}]', f'422["event",{json.dumps(message)}]']
    address = f"{stage.url}_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    answers = await vera.page.evaluate(_TALK, [address, words, "432"])
    assert answers[-2:] == ["431[false]", "432[false]"]
    query = f"{address}&implicit_handshake=true&client_id={message['client_id']}&tab_id={tab}&document_id=d"
    answers = await vera.page.evaluate(_TALK, [query, [], "44"])
    assert "handshake failed" in answers[-1]
    assert await is_untouched(boss)


@pytest.mark.slow
async def test_a_request_cannot_continue_another_visitors_socket(visit):
    boss, message = await pressed_delete(visit)
    vera = await visit("vera")
    await vera.go("topics/orders")
    sid = await boss.page.evaluate("window.socket.io.engine.id")
    post = """([sid, body]) => fetch(`/_nicegui_ws/socket.io/?EIO=4&transport=polling&sid=${sid}`,
        {method: "POST", body}).then(answer => answer.status)"""
    assert await vera.page.evaluate(post, [sid, f'42["event",{json.dumps(message)}]']) == 403
    vera.wrong.clear()  # the browser reports the 403
    assert await is_untouched(boss)


async def test_a_socket_whose_log_in_has_ended_may_use_no_page_and_an_absent_page_does_no_harm():
    session = Session("boss", Role.ADMIN, 1e9)
    scope: dict[str, object] = {
        "type": "http",
        "path": "/test",
        "headers": [],
        "server": ("a", 1),
        "query_string": b"",
    }
    scope["state"] = {"session": session}
    environ = {"asgi.scope": {"state": {"session": session}}}
    page = Client(ui.page("/test"), request=Request(scope))
    assert may_use(environ, page.id) and not may_use({}, page.id)
    assert may_use({}, "absent")
    session.is_alive = False
    assert not may_use(environ, page.id)
    page.delete()


async def test_messages_that_no_browser_sends_cause_a_short_line_and_no_error(caplog):
    BoundSockets(core.app)  # puts the checks before NiceGUI's handlers
    session = Session("vera", Role.VIEW, 1e9)
    state = {"state": {"session": session}}
    scope = {"type": "http", "path": "/test", "headers": [], "server": ("a", 1), "query_string": b""}
    page = Client(ui.page("/test"), request=Request(scope | state))
    core.sio.environ["connection"] = {"asgi.scope": state}
    sid = await core.sio.manager.connect("connection", "/")
    own = {"client_id": page.id}
    for event, given, said in (
        ("event", [], "a socket of vera sends event without a page"),
        ("event", [[]], "a socket of vera sends event without a page"),
        ("event", [{"client_id": [1]}], "a socket of vera sends event without a page"),
        ("ack", [own | {"next_message_id": []}, 2], ""),
        ("ack", [own], "a socket of vera sends ack that cannot be read: KeyError('next_message_id')"),
        (
            "log",
            [own | {"level": "error", "message": "1\n\x1b[2J" * 99}],
            r"a page of vera says: 1\n\x1b[2J1\n",
        ),
        ("connect", [{"QUERY_STRING": [], "asgi.scope": 1}], ""),
        ("connect", [], ""),
        ("disconnect", [1, 2], ""),
    ):
        caplog.clear()
        answer = await core.sio._trigger_event(event, "/", sid, *given)
        assert not answer
        lines = [each.getMessage() for each in caplog.records]
        assert len(lines) == bool(said) and all(each.startswith(said) and len(each) < 400 for each in lines)
    page.delete()
    await core.sio.manager.disconnect(sid, "/")
    del core.sio.environ["connection"]
