import functools

import pytest

import sparrowmq.sync
from sparrowmq.client.arguments import is_coroutine_function, is_generator_function
from sparrowmq.client.client import connect
from sparrowmq.errors import ConfigError


def plain(message): ...


async def work(message): ...


def generate(message):
    yield message


async def generate_later(message):
    yield message


def plainly(function):
    @functools.wraps(function)
    def call(message):
        return function(message)

    return call


def in_loop(function):
    @functools.wraps(function)
    async def call(message):
        return [each async for each in function(message)]

    return call


class Generating:
    def __call__(self, message):
        yield message

    def method(self, message):
        yield message


class Later:
    async def __call__(self, message):
        yield message


class Works:
    async def __call__(self, message): ...


GENERATORS = [
    generate,
    generate_later,
    functools.partial(generate),
    functools.partial(Generating()),
    Generating(),
    Generating().method,
    Later(),
    plainly(generate),
    plainly(plainly(generate_later)),
    functools.lru_cache(generate),
    functools.partial(plainly(generate)),
]

DECLARED = [
    lambda mq, function: mq.handler("t", group="g")(function),
    lambda mq, function: mq.subscribe("t", function, group="g"),
    lambda mq, function: mq.subscribe("t", group="g", on_assigned=function),
    lambda mq, function: mq.subscribe("t", group="g", on_revoked=function),
    lambda mq, function: mq.pull_consumer(group="g", on_assigned=function),
    lambda mq, function: mq.middleware(function),
    lambda mq, function: mq.check("payments")(function),
    lambda mq, function: mq.producer("payments", check=function),
]


@pytest.mark.parametrize("function", GENERATORS)
@pytest.mark.parametrize("declare", DECLARED)
def test_a_generator_is_refused_when_it_is_declared(declare, function):
    with pytest.raises(ConfigError, match="is a generator: a call of it would run nothing"):
        declare(connect("127.0.0.1:1"), function)


@pytest.mark.parametrize("declare", DECLARED)
def test_without_async_too(declare):
    with (
        sparrowmq.sync.connect("127.0.0.1:1") as mq,
        pytest.raises(ConfigError, match="is a generator"),
    ):
        declare(mq, generate)


@pytest.mark.parametrize("declare", DECLARED)
@pytest.mark.parametrize("function", [lambda: None, lambda *, message: None, lambda one, two, three: None])
def test_a_function_of_other_arguments_is_refused_when_it_is_declared(declare, function):
    with pytest.raises(ConfigError, match=r"takes other arguments|must take the body"):
        declare(connect("127.0.0.1:1"), function)


@pytest.mark.parametrize("function", [print, [].append, str, functools.partial(int, base=2), lambda *all_of_them: 1])
def test_functions_of_other_kinds_take_a_message(function):
    connect("127.0.0.1:1").subscribe("t", function, group="g")


@pytest.mark.parametrize("function", [work, generate, generate_later])
@pytest.mark.parametrize("name", ["before_send", "after_consume", "connected"])
def test_a_hook_is_a_plain_function(name, function):
    with pytest.raises(ConfigError, match=f"Own.{name} is no plain function, so a call of it would run nothing"):
        type("Own", (sparrowmq.Hooks,), {name: function})
    type("Own", (sparrowmq.Hooks,), {name: plain, "other": work})


@pytest.mark.parametrize(
    "function",
    [plain, work, functools.partial(work), Works(), len, lambda message: None, in_loop(generate_later)],
)
def test_other_functions_are_none(function):
    assert not is_generator_function(function)


def test_a_function_that_wraps_itself_is_none():
    def turn(message): ...

    turn.__wrapped__ = turn  # type: ignore[attr-defined]
    assert not is_generator_function(turn)


def test_coroutine_functions_are_told_apart():
    async def work(argument) -> None: ...

    class Both:
        async def __call__(self, argument) -> None: ...

        def plain(self, argument) -> None: ...

        async def method(self, argument) -> None: ...

    both = Both()
    for handler in (work, both, both.method, functools.partial(work, 1)):
        assert is_coroutine_function(handler)
    for plain in (both.plain, len, lambda _: work(1)):
        assert not is_coroutine_function(plain)
