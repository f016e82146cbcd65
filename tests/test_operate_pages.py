"""Pages of docs/operate: commands run in their order, with only the extras that each page tells readers to install.

tests/test_operating_page.py does so for operating.md, and tests/deploy for containers.md.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest

from sparrowmq import sync
from sparrowmq.testing.background import BackgroundCluster
from tests.environments import python_with
from tests.place import SMALL, Place
from tests.test_readme import run

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[1] / "docs" / "operate"
HERE = {"10.0.0.5": "127.0.0.1"}
PROGRAM = """
import asyncio, ssl, sparrowmq
default = ssl.create_default_context
def strict(**given):
    context = default(**given)
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 does
    return context
ssl.create_default_context = strict
async def main():
    {piece}
    async with mq:
        print((await mq.send("orders", b"hello")).status.name)
asyncio.run(main())
"""


def boxes(page: str, *kinds: str) -> list[str]:
    """Return the boxes of a page that are of these kinds, without their indentation."""
    text = (FOLDER / page).read_text(encoding="utf-8")
    found = re.findall(r"^( *)```(\w*)\n(.*?)^\1```", text, re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(content) for _, kind, content in found if kind in kinds]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def configure(place: Place, *pieces: str) -> None:
    """Write broker.conf: what every broker needs here, and pieces of the page."""
    own = f"brokerName=broker-a\nlistenPort={place.broker_port}\nnamesrvAddr={place.namesrv}\n"
    own += f"storePathRootDir={place.folder}/store\n{SMALL}"
    (place.folder / "broker.conf").write_text(own + "".join(map(place.text, pieces)))


def security_box(words: str) -> str:
    """The shell commands of the security page with these words; the first if several boxes have them."""
    return next(each for each in boxes("security.md", "bash") if words in each)


def sent_by(place: Place, piece: str) -> str:
    """Return the output of a program that connects as the page says and sends a message, with the client alone."""
    return run(python_with(), place.folder, "-c", PROGRAM.format(piece=place.text(piece.strip())))


# security.md --------------------------------------------------------------------------------------------------------


def test_accounts_of_the_security_page_send_and_are_changed_by_its_commands(tmp_path, stack):
    place = Place(tmp_path, stack, "server")
    place.replaced |= HERE | {"/etc/rocketmq": str(tmp_path), "ROCKETMQ_SECRET_KEY=...": ""}
    accounts = boxes("security.md", "yaml")[0]
    (tmp_path / "accounts.yml").write_text(accounts)
    configure(place, boxes("security.md", "properties")[0])
    place.start("mqnamesrv\nmqbroker -c broker.conf")
    assert sent_by(place, boxes("security.md", "python")[2]) == "OK\n"
    listing, changes = (security_box(each) for each in ("sparrowmq acl list\n", "sparrowmq acl set"))
    assert "shop-website" in place.shell(f"export NAMESRV_ADDR={place.namesrv}\n{listing}")
    for line in changes.splitlines():
        place.shell(line, typed="8Fh2kQz0pLw\n" * 2 if "--secret -" in line else "y\n")
    assert "shop-website" not in (tmp_path / "accounts.yml").read_text()
    assert "192.168.1.1-9" in (tmp_path / "accounts.yml").read_text()


def test_users_of_the_security_page_are_changed_by_its_commands(tmp_path, stack):
    place = Place(tmp_path, stack, "server")
    place.replaced |= HERE | {"ROCKETMQ_HOME=...": f"ROCKETMQ_HOME={tmp_path}"}
    place.replaced |= {"/var/lib/rocketmq": f"{tmp_path}/store"}
    found = [each for each in boxes("security.md", "properties") if "initAuthenticationUser" in each]
    settings, of_name_server = found
    configure(place, settings, "brokerClusterName=DefaultCluster\n")
    (tmp_path / "namesrv.conf").write_text(place.text(of_name_server))
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text("accessKey: administrator\nsecretKey: vT7xN3mRb5c\n")
    place.start("mqnamesrv -c namesrv.conf\nmqbroker -c broker.conf")
    export, *commands = security_box("sparrowmq user add").splitlines()
    export = export.replace("ROCKETMQ_SECRET_KEY=...", "ROCKETMQ_SECRET_KEY=vT7xN3mRb5c")
    shown = [place.shell(f"{export}\n{line}", typed="8Fh2kQz0pLw\n" * 2) for line in commands]
    assert "shop" in shown[3] and "8Fh2kQz0pLw" not in "".join(shown)
    place.shell(f"{export}\nsparrowmq user delete shop --yes")
    lines = security_box("mqadmin createUser").splitlines(True)
    said = place.shell("".join(line for line in lines if "copyUser" not in line))
    assert "Topic:prices*" in said and "Group:*" in said and "10.0.0.0/8" in said


@pytest.mark.parametrize("is_mutual", [False, True], ids=["TLS", "mTLS"])
def test_certificates_of_the_security_page_encrypt_connections(tmp_path, stack, is_mutual):
    place = Place(tmp_path, stack, "server")
    place.replaced |= HERE | {"/etc/rocketmq": str(tmp_path)}
    place.shell(security_box("openssl"))
    settings = boxes("security.md", "properties")[1 : 3 if is_mutual else 2]
    assert all("tls.client" in each for each in settings)
    configure(place, *settings)
    (tmp_path / "namesrv.conf").write_text("".join(map(place.text, settings)))
    place.start("mqnamesrv -c namesrv.conf\nmqbroker -c broker.conf")
    listed = place.shell(f"sparrowmq broker list -n {place.namesrv} --tls-config broker.conf")
    assert "broker-a" in listed
    if not is_mutual:
        assert sent_by(place, boxes("security.md", "python")[3]) == "OK\n"


# metrics.md ---------------------------------------------------------------------------------------------------------


def test_metrics_are_served_by_the_command_of_the_page(tmp_path, stack):
    place = Place(tmp_path, stack, "server")
    place.replaced["5557"] = str(place.spare_port)
    configure(place, "metricsPromExporterPort=5557\n")
    start, address = boxes("metrics.md", "bash")[0].splitlines()
    place.start(f"mqnamesrv\n{start}")
    with urlopen(place.text(address.removeprefix("curl ")), timeout=30) as page:
        assert b"sparrowmq_" in page.read()


def test_a_broker_starts_with_a_collector_that_cannot_be_reached(tmp_path, stack):
    install, start = boxes("metrics.md", "bash")[1].splitlines()
    assert install == 'pip install ".[server,otlp]"'
    place = Place(tmp_path, stack, "server", "otlp")
    place.replaced["4318"] = str(place.spare_port)
    configure(place)
    assert "boot success" in place.start(f"mqnamesrv\n{start}")


def test_a_broker_without_the_extra_otlp_says_what_to_install(tmp_path, stack):
    place = Place(tmp_path, stack, "server")
    configure(place)
    with pytest.raises(AssertionError, match=r"pip install 'sparrowmq\[otlp\]'"):
        place.start(boxes("metrics.md", "bash")[1].splitlines()[1])


# console.md ---------------------------------------------------------------------------------------------------------


def test_the_console_starts_with_its_extra_alone(tmp_path, stack, monkeypatch):
    monkeypatch.setenv("SPARROWMQ_CONSOLE_PASSWORD", "long enough")
    install, start, make, with_users = "".join(boxes("console.md", "")).splitlines()
    assert install == 'pip install ".[console]"'
    place = Place(tmp_path, stack, "console")
    cluster = stack.enter_context(BackgroundCluster(tmp_path / "stores"))
    place.replaced |= {"127.0.0.1:9876": cluster.namesrv, "ADDRESS": cluster.namesrv, "FILE": "users"}
    place.replaced = {there: here for there, here in place.replaced.items() if there != "9876"}
    assert "user admin, password " in place.start(f"{start} --port 0", until="the console is at ")
    (tmp_path / "users").write_text(place.shell(make))
    assert "password" not in place.start(f"{with_users} --port 0", until="the console is at ")


# mqadmin.md ---------------------------------------------------------------------------------------------------------


def test_commands_of_the_mqadmin_page_need_the_client_alone(tmp_path, stack):
    place = Place(tmp_path, stack)
    cluster = stack.enter_context(BackgroundCluster(tmp_path / "stores"))
    place.replaced = {"127.0.0.1:9876": cluster.namesrv}
    with sync.connect(cluster.namesrv) as mq:
        mq.send("Orders", b"hello", keys=["4711"])
        with mq.subscribe("Orders", group="billing", start="earliest") as orders:
            next(iter(orders)).ack()
    [box] = boxes("mqadmin.md", "bash")
    said = place.shell(box)
    assert "DefaultCluster" in said and "Diff Total: 0" in said


# Single questions on other pages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("page", "address"), [("failover.md", "10.0.0.1:9876"), ("../use/errors.md", "10.0.0.1:9876")])
def test_questions_about_a_cluster_are_answered(tmp_path, stack, page, address):
    place = Place(tmp_path, stack, "server")
    cluster = stack.enter_context(BackgroundCluster(tmp_path / "stores"))
    place.replaced = {address: cluster.namesrv}
    with sync.connect(cluster.namesrv) as mq:
        mq.send("orders", b"hello")
        with mq.subscribe("orders", group="billing", start="earliest") as orders:
            next(iter(orders)).ack()
            asking = [box for box in boxes(page, "sh") if box.startswith("sparrowmq ") and address in box]
            questions = [box for box in asking if " elect " not in box and " transfer " not in box]
            assert len(questions) == 1
            assert place.shell(questions[0])
