import pytest

from sparrowmq.admin.findings import Finding, Verdict
from sparrowmq.console.pages.servers import badge_text, channel_lines, problems, summary

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_findings_are_told_the_worst_first():
    ok, warning, wrong = (Finding(verdict, verdict.value, "looked") for verdict in Verdict)
    assert problems([ok, warning, wrong]) == [wrong, warning]
    assert summary([ok, ok, wrong]) == "1 wrong, 0 warnings, 2 OK"


async def test_what_of_the_official_switches_applies_is_told():
    assert "TLS: on" in channel_lines(True)[0] and "TLS: off" in channel_lines(False)[0]
    assert "does not apply" in channel_lines(False)[1]


@pytest.mark.slow
async def test_who_administers_has_other_name_servers_asked(visit, stage):
    boss, vera = await visit("boss"), await visit("vera")
    await boss.go("servers")
    await boss.press("Use other name servers")
    await boss.fill("Addresses", "127.0.0.1:1")
    await boss.press("Use")
    await boss.sees("127.0.0.1:1")
    await boss.fill("Addresses", stage.namesrv)
    await boss.press("Use")
    await boss.sees("the console uses these name servers now")
    await vera.go("servers")
    await vera.sees("TLS: off", "VIP channel: does not apply")
    assert await vera.page.get_by_role("button", name="Use other name servers").count() == 0


@pytest.mark.nightly
async def test_name_servers_and_what_the_doctor_finds(visit, stage):
    vera = await visit("vera")
    await vera.go("servers")
    await vera.sees(stage.namesrv, "up")
    await vera.press("Examine the cluster")
    await vera.sees(" OK")


async def test_an_effect_is_marked_as_one():
    cause = Finding(Verdict.WRONG, "the disk is full", "asked", "free some")
    assert badge_text(cause) == "wrong"
    assert badge_text(Finding(Verdict.WRONG, "no slave", "asked", cause=cause.what)) == "effect"
