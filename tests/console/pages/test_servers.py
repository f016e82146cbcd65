import pytest

from sparrowmq.client.admin.doctor import Finding, Verdict
from sparrowmq.console.pages.servers import summary, wrong_in

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_findings_are_told_the_worst_first():
    ok, warning, wrong = (Finding(verdict, verdict.value, "looked") for verdict in Verdict)
    assert wrong_in([ok, warning, wrong]) == [wrong, warning]
    assert summary([ok, ok, wrong]) == "1 wrong, 0 warnings, 2 things are well"


@pytest.mark.slow
async def test_name_servers_and_what_the_doctor_finds(visit, stage):
    vera = await visit("vera")
    await vera.go("servers")
    await vera.sees(stage.namesrv, "up")
    await vera.press("Examine the cluster")
    await vera.sees("things are well")
