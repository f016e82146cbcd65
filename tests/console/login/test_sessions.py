from sparrowmq.console.sessions import SESSION_S, Notice, Session, Sessions
from sparrowmq.console.users import Role
from sparrowmq.testing import ManualClock


class Shown:
    """A page that a browser would show."""

    def __init__(self):
        self.is_open = True
        self.is_closed = False
        self.shown = []

    def show(self, notice):
        self.shown.append(notice.text)

    def close(self):
        self.is_closed = True


def test_a_notice_is_shown_where_it_arose_or_on_the_page_that_follows():
    session = Session("alice", Role.VIEW, 1e9)
    first, second, third = Shown(), Shown(), Shown()
    session.add_page(first)
    session.add_page(second)
    session.notify(Notice("here"), first)
    assert (first.shown, second.shown) == (["here"], [])
    first.is_open = False
    session.notify(Notice("elsewhere"), first)
    assert second.shown == ["elsewhere"]
    second.is_open = False
    session.remove_page(second)
    session.notify(Notice("later"), second)
    session.add_page(third)
    assert third.shown == ["later"]
    session.add_page(Shown())
    assert third.shown == ["later"] and not session.waiting_notices


def test_a_cookie_finds_its_session_until_log_out():
    sessions = Sessions(ManualClock())
    cookie = sessions.begin("alice", Role.OPERATE)
    session = sessions.find(cookie)
    assert session is not None and session.name == "alice"
    assert session.may(Role.VIEW) and session.may(Role.OPERATE) and not session.may(Role.ADMIN)
    page = Shown()
    session.add_page(page)
    sessions.end(cookie)
    assert page.is_closed and sessions.find(cookie) is None
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
    await clock.advance(SESSION_S - 1)
    assert sessions.find(cookie) is session
    await clock.advance(1)
    assert sessions.find(cookie) is None
    assert session is not None and not session.is_alive


def test_the_eldest_makes_room():
    sessions = Sessions(ManualClock())
    first = sessions.begin("first", Role.VIEW)
    others = [sessions.begin(f"{number}", Role.VIEW) for number in range(1000)]
    assert sessions.find(first) is None and sessions.find(others[-1]) is not None


def test_a_user_who_logs_in_again_and_again_ends_only_the_own_sessions():
    sessions = Sessions(ManualClock())
    other = sessions.begin("other", Role.ADMIN)
    own = [sessions.begin("first", Role.VIEW) for _ in range(1000)]
    assert sessions.find(other) is not None and len(sessions) == 51
    assert sessions.find(own[0]) is None and sessions.find(own[-1]) is not None
