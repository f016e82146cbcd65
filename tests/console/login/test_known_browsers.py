from sparrowmq.console.login import browser_of, new_cookie
from sparrowmq.console.users import Account, Role

BOSS = Account("boss", Role.ADMIN, "scrypt$1$1$1$salt$digest")


def test_a_cookie_names_its_browser_for_the_account_that_used_it():
    first, second = new_cookie(BOSS), new_cookie(BOSS)
    assert browser_of(BOSS, first) != browser_of(BOSS, second) != ""
    assert browser_of(Account("olga", Role.VIEW, BOSS.password_hash), first) == ""
    assert browser_of(None, first) == ""


def test_a_new_password_makes_the_cookie_invalid():
    assert browser_of(Account("boss", Role.ADMIN, "scrypt$1$1$1$salt$other"), new_cookie(BOSS)) == ""


def test_a_cookie_that_was_changed_or_made_up_is_of_no_browser():
    ident, _, signature = new_cookie(BOSS).partition(".")
    for forged in (None, "", ".", ident, f"{ident}.", f"x.{signature}", f"{ident}.{'0' * 64}", "é.ö"):
        assert browser_of(BOSS, forged) == ""
