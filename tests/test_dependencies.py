"""What is declared is used, and what is used is declared."""

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
OURS = {"sparrowmq", "pyspark_rocketmq", "pytest_sparrowmq", "tests", "tools", "bench", "examples"}
# Comes with pyspark, of one version with it.
BUNDLED = {"py4j": "pyspark"}
# Several distributions share the name of the project.
SHARED = {
    "google.protobuf": "protobuf",
    "opentelemetry.exporter.otlp.proto.http": "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry.sdk": "opentelemetry-sdk",
    "opentelemetry.proto": "opentelemetry-proto",
    "opentelemetry": "opentelemetry-api",
}
# Run as programs, or by pytest itself; drivers that a URL names; or they hold back what another one brings.
NOT_IMPORTED = {
    "aiosqlite",
    "grpcio-tools",
    "flask",
    "flask-cors",
    "gunicorn",
    "psycopg",
    "mkdocs-material",
    "mypy",
    "ruff",
    "pytest-rerunfailures",
    "pytest-timeout",
    "types-psutil",
    "types-pyyaml",
    "types-setuptools",
    "pandas",
}


# What is for Spark but not for tables, commands and Prometheus.
SPARK = [
    f"spark/{path.name}"
    for path in sorted((ROOT / "sparrowmq" / "spark").iterdir())
    if path.name not in ("__pycache__", "pipelines", "commands", "exposed.py") and not path.name.endswith("_command.py")
]


def normal(name):
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", name)[0]).lower()


def distribution(module):
    """The name under which a module is installed; its own where that is not installed."""
    shared = [name for prefix, name in SHARED.items() if f"{module}.".startswith(f"{prefix}.")]
    top = module.partition(".")[0]
    return shared[0] if shared else BUNDLED.get(top) or normal(installed().get(top, [top])[0])


@cache
def installed():
    return packages_distributions()


def files_of(path):
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def used(*folders, named=False):
    """The distributions that the files of some folders import, or, with `named`, look for by name."""
    for file in [file for folder in folders for file in files_of(ROOT / folder)]:
        for module in modules_of(file, named):
            top = module.partition(".")[0]
            if top not in OURS and top not in sys.stdlib_module_names and top != "__future__":
                yield distribution(module)


def modules_of(file, named):
    """The modules that a file imports, or, with `named`, perhaps looks for."""
    imported, texts = read_names(file)
    return imported + (texts if named else [])


@cache
def read_names(file):
    """The modules that a file imports, and its texts that may be names of modules."""
    imported, texts = [], []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported.append(node.module)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            texts.append(node.value)
    return imported, texts


def declared(*extras):
    rows = [*PROJECT["dependencies"], *(row for extra in extras for row in EXTRAS[extra])]
    return {normal(row) for row in rows} - {"sparrowmq"}


def included(extra):
    """The other extras of ours that one brings."""
    rows = [row for row in EXTRAS[extra] if row.startswith("sparrowmq[")]
    return {name for row in rows for name in row.partition("[")[2].strip("]").split(",")}


@pytest.mark.slow
def test_what_is_always_installed_is_imported_by_the_product():
    assert declared() - set(used("sparrowmq", "pyspark_rocketmq")) == set()


@pytest.mark.slow
@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - {"dev"}))
def test_what_an_extra_installs_is_used_by_the_product_or_the_demo(extra):
    wanted = {normal(row) for row in EXTRAS[extra]} - {"sparrowmq"}
    assert wanted - set(used("sparrowmq", "pytest_sparrowmq", "examples/flights", named=True)) - NOT_IMPORTED == set()


@pytest.mark.slow
def test_what_developers_install_is_used():
    wanted = {normal(row) for row in EXTRAS["dev"]} - {"sparrowmq"}
    assert wanted - set(used("sparrowmq", "tests", "tools", named=True)) - NOT_IMPORTED == set()


def test_what_is_imported_is_declared():
    """Nothing needs what only developers have."""
    assert set(used("sparrowmq", "pyspark_rocketmq", "pytest_sparrowmq")) <= declared(*set(EXTRAS) - {"dev"})


@pytest.mark.parametrize(
    ("extra", "parts"),
    [
        ("server", ["store", "namesrv", "broker", "cli"]),
        # Whoever reads a topic does not choose the compression of its bodies.
        ("spark", [*SPARK, "protocol/messages/compression.py"]),
        ("lake", [*SPARK, "spark/pipelines"]),
        (
            "server",
            [*(f"spark/{name}_command.py" for name in ("pipeline", "cluster", "lake")), "spark/exposed.py"],
        ),
        ("testing", ["testing"]),
    ],
)
def test_what_a_part_imports_comes_with_its_extra(extra, parts):
    assert set(used(*(f"sparrowmq/{part}" for part in parts))) <= declared(extra, *included(extra))


def test_what_the_demo_imports_comes_with_its_extra():
    assert set(used("examples/flights")) <= declared("demo", *included("demo"))


def test_what_the_client_imports_without_being_asked_is_in_the_base_install():
    lower = [f"sparrowmq/{part}" for part in ("protocol", "remoting", "client")]
    compressed_and_settings = declared("compression") | {"javaproperties"}
    assert set(used(*lower)) - (compressed_and_settings - declared()) == declared()


@pytest.mark.parametrize(("lock", "extras"), [("runtime.txt", ("server",)), ("dev.txt", tuple(EXTRAS))])
def test_the_locks_hold_what_is_declared(lock, extras):
    locked = set(re.findall(r"(?m)^([\w.-]+)==", (ROOT / "requirements" / lock).read_text()))
    assert declared(*extras) <= {normal(name) for name in locked}
