"""The public names, and that importing them costs nothing until they are used."""

import importlib
import subprocess
import sys

import pytest

import sparrowmq
from sparrowmq import errors

# Those that programs meet; others are of servers, stores and operators.
ERRORS = [
    *("AccessDenied", "BeingHandled", "BrokerUnreachable", "ClientClosed", "ConfigError", "ConnectionClosed"),
    *("InvalidBody", "InvalidFilter", "InvalidMessage", "InvalidName", "InvalidSchema", "MessageTooLarge"),
    *("NameServerUnreachable", "NetworkError", "NoRoute", "RemoteError", "RequestTimeout", "SendFailed"),
    *("SendManyFailed", "SparrowError", "TransactionEnded", "WrongServer"),
]
NAMES = [
    "Admin",
    "Client",
    "Consumer",
    "Credentials",
    "FlowLimits",
    "Hooks",
    "Message",
    "MessageQueue",
    "Producer",
    "ProducerSettings",
    "PullConsumer",
    "ReceivedMessage",
    "Reject",
    "Retry",
    "SendResult",
    "SendStatus",
    "Server",
    "SimpleConsumer",
    "Transaction",
    "allocation",
    "connect",
    "errors",
    "sync",
    *ERRORS,
]
# What comes with Python apart, all that programs with a client load: the base install has no more.
OF_THE_BASE = {"msgspec", "sparrowmq", "zlib_ng"}


def test_these_are_the_public_names():
    assert sorted(sparrowmq.__all__) == sorted([*NAMES, "__version__"])
    assert set(sparrowmq.__all__) == set(dir(sparrowmq))


@pytest.mark.parametrize("name", NAMES)
def test_each_is_loaded_when_it_is_used(name):
    assert getattr(sparrowmq, name).__name__.rpartition(".")[2] == name


def test_each_error_of_the_package_can_be_imported_from_it():
    errors_of_servers = {name for name, home in sparrowmq._MODULE_BY_FORMER_NAME.items() if home == "errors"}
    types = {name: each for name, each in vars(errors).items() if isinstance(each, type)}
    ours = {name for name, each in types.items() if issubclass(each, errors.SparrowError)}
    assert ours == {*ERRORS, *errors_of_servers}


@pytest.mark.parametrize("name", sparrowmq._MODULE_BY_FORMER_NAME)
def test_a_name_that_moved_warns(name):
    home = f"sparrowmq.{sparrowmq._MODULE_BY_FORMER_NAME[name]}"
    with pytest.warns(DeprecationWarning, match=rf"^import {name} from {home}: sparrowmq\.{name} goes") as caught:
        scope: dict[str, object] = {}
        exec(f"from sparrowmq import {name}", scope)
    assert caught[0].filename == "<string>", "the line of the program"
    assert scope[name] is getattr(importlib.import_module(home), name)


def test_a_wrong_name_is_an_error():
    with pytest.raises(AttributeError, match="no attribute 'Conect'"):
        sparrowmq.Conect  # noqa: B018


def loaded(program: str) -> list[str]:
    """The modules that a program has loaded at its end, without what a site's own .pth files load."""
    show = "; import sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program + show], capture_output=True, text=True, check=True)
    bare = subprocess.run([sys.executable, "-c", show[2:]], capture_output=True, text=True, check=True)
    return sorted(set(run.stdout.split()) - set(bare.stdout.split()))


def test_importing_the_package_loads_nothing_else():
    ours = [name for name in loaded("import sparrowmq") if name.startswith("sparrowmq")]
    assert ours == ["sparrowmq", "sparrowmq.version"]
    assert "asyncio" not in loaded("import sparrowmq")


@pytest.mark.parametrize("name", ["Admin", "connect", "sync"])
def test_a_client_loads_nothing_that_the_base_install_lacks(name):
    modules = loaded(f"import sparrowmq; sparrowmq.{name}")
    tops = {each.partition(".")[0] for each in modules}
    tops = {top for top in tops if "cython_" not in top}  # the kernel brings them along
    assert tops - set(sys.stdlib_module_names) - {"typing_extensions"} <= OF_THE_BASE
    parts = {each.split(".")[1] for each in modules if each.startswith("sparrowmq.")}
    assert parts.isdisjoint({"store", "broker", "namesrv", "cli", "config"})


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("once.sql", "sqlalchemy", "sql"),
        ("once.redis", "redis", "redis"),
        ("once.in_django.models", "django", "django"),
        ("otel", "opentelemetry", "otel"),
        ("spark.register", "pyspark", "spark"),
    ],
)
def test_a_module_without_its_package_names_the_extra(module, package, extra):
    program = f"import sys; sys.modules[{package!r}] = None; import sparrowmq.{module}"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert f"pip install 'sparrowmq[{extra}]'" in run.stderr.splitlines()[-1]
