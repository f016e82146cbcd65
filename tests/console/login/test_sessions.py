from sparrowmq.console.login.sessions import LIFE_S, Sessions
from sparrowmq.console.users import Role
from sparrowmq.testing import ManualClock


def test_a_cookie_finds_its_session_until_log_out():
    sessions = Sessions(ManualClock())
    cookie = sessions.begin("alice", Role.OPERATE)
    session = sessions.find(cookie)
    assert session is not None and session.name == "alice"
    assert session.may(Role.VIEW) and session.may(Role.OPERATE) and not session.may(Role.ADMIN)
    told = []
    session.on_end.append(lambda: told.append(1))
    sessions.end(cookie)
    assert told == [1] and sessions.find(cookie) is None
    assert not session.may(Role.VIEW), "a page that is still open may nothing"
    sessions.end(cookie)


def test_a_cookie_that_was_changed_or_made_up_is_nobodys():
    sessions = Sessions(ManualClock())
    ident, _, signature = sessions.begin("alice", Role.VIEW).partition(".")
    for forged in (None, "", ".", ident, f"{ident}.", f"{ident}.{'0' * 64}", f"x.{signature}", "é.ö"):
        assert sessions.find(forged) is None
    foreign = Sessions(ManualClock()).begin("alice", Role.ADMIN)
    assert sessions.find(foreign) is None


async def test_a_session_ends_after_half_a_day():
    clock = ManualClock()
    sessions = Sessions(clock)
    cookie = sessions.begin("alice", Role.VIEW)
    session = sessions.find(cookie)
    await clock.advance(LIFE_S - 1)
    assert sessions.find(cookie) is session
    await clock.advance(1)
    assert sessions.find(cookie) is None
    assert session is not None and not session.is_alive


def test_the_eldest_makes_room():
    sessions = Sessions(ManualClock())
    first = sessions.begin("first", Role.VIEW)
    others = [sessions.begin(f"{number}", Role.VIEW) for number in range(1000)]
    assert sessions.find(first) is None and sessions.find(others[-1]) is not None
