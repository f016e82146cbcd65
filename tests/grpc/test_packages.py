"""The packages of a gRPC port."""

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.grpc import packages


def test_all_are_installed_here():
    assert packages.missing_packages() == []


def test_a_module_whose_outer_package_is_missing_is_missing(monkeypatch):
    monkeypatch.setattr(packages, "PACKAGES", {"nowhere_at_all.inside": "inside", "nowhere_at_all": "outside"})
    assert packages.missing_packages() == ["inside", "outside"]
    with pytest.raises(ConfigError, match="mqproxy needs the packages inside, outside: pip install"):
        packages.check_installed("mqproxy")
