"""The packages of a gRPC port."""

import importlib.util

from sparrowmq.proxy import packages


def test_all_are_installed_here():
    assert packages.missing() == []


def test_a_module_whose_outer_package_is_missing_is_missing(monkeypatch):
    monkeypatch.setattr(
        packages, "PACKAGES", {"nowhere_at_all.inside": "inside", "nowhere_at_all": "outside"}
    )
    assert packages.missing() == ["inside", "outside"]
    assert importlib.util.find_spec("nowhere_at_all") is None
