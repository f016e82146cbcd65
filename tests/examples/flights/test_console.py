"""The console beside the demo is a process that comes and goes with it."""

import urllib.error
import urllib.request

import pytest

from examples.flights.console import ConsoleProcess
from sparrowmq.errors import SparrowError
from sparrowmq.testing.background import BackgroundCluster

# NiceGUI takes a second, and many beside others.
pytestmark = pytest.mark.timeout(120)


@pytest.mark.slow
def test_it_shows_the_cluster_until_it_is_left(tmp_path):
    with BackgroundCluster(tmp_path / "store") as cluster:
        with ConsoleProcess(cluster.namesrv, tmp_path) as console:
            assert "user admin, password " in console.sentence and console.address in console.sentence
            page = urllib.request.Request(f"{console.address}/topics/flights", headers={"accept": "text/html"})
            with urllib.request.urlopen(page, timeout=60) as shown:
                assert shown.status == 200 and shown.url.startswith(f"{console.address}/login")
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(console.address, timeout=5)


@pytest.mark.slow
def test_why_it_did_not_start_is_told(tmp_path):
    with (
        pytest.raises(SparrowError, match=r"the console did not start: .*is not an address"),
        ConsoleProcess("a b:c", tmp_path),
    ):
        pass
