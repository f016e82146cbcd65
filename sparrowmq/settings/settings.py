"""Settings: typed fields read from Java's .properties files, TOML, the environment or the command line.

    @dataclass(frozen=True, kw_only=True)
    class NamesrvSettings(Settings):
        port: int = setting("listenPort", 9876, integer(0, 65535))
        "Port that clients and brokers connect to."

    settings, report = build(NamesrvSettings, load("namesrv.conf"), "namesrv.conf")

Keys have the names of Apache's files. Each key of a file ends in one class of the report: honoured; accepted without
effect, with the reason; or unknown, with the nearest known name. One error lists all wrong values of a file
(`setting_kinds.py`). Numbers of some keys count as the nearest allowed ones, with a warning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from inspect import get_annotations
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from sparrowmq.errors import ConfigError
from sparrowmq.settings.setting_kinds import Kind, OutOfRange, Unreadable
from sparrowmq.settings.settings_files import parse_properties, read_text, value_of

S = TypeVar("S", bound="Settings")


def setting(
    key: str, otherwise: Any, kind: Kind, *, also: Sequence[str] = (), secret: bool = False, live: bool = False
) -> Any:
    """A field that is read from `key`, and is `otherwise` without it. The string below the field describes it. `also`
    has other spellings of Apache's files; a `live` setting can change while the server runs (live_settings.py).
    """
    metadata = {"keys": (key, *also), "kind": kind, "live": live}
    return field(default=otherwise, repr=not secret, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The root of the settings classes."""

    # Keys that Apache knows and that have no effect here, with the reason.
    ACCEPTED: ClassVar[Mapping[str, str]] = {}

    # Keys that are refused unless the value is "false" or "disabled", since people rely on them. Each has an advice;
    # `tls*` is every key that begins so.
    REFUSED: ClassVar[Mapping[str, str]] = {}

    # Keys whose number counts as the nearest allowed one if it is not allowed, with a warning.
    CLAMPED: ClassVar[Collection[str]] = ()

    # What was given for keys of ACCEPTED and REFUSED, since tools which ask for the settings read some.
    accepted: Mapping[str, str] = field(default_factory=dict, repr=False)

    def as_properties(self) -> dict[str, str]:
        """Every honoured key that has a value, and every accepted one that was given, as Java writes them."""
        honoured = {
            field_of_key.metadata["keys"][0]: field_of_key.metadata["kind"].render(value)
            for field_of_key in keyed_fields(type(self))
            if (value := getattr(self, field_of_key.name)) is not None
        }
        return dict(sorted((dict(self.accepted) | honoured).items()))

    def as_shown(self) -> dict[str, str]:
        """The properties for tools that ask for the settings; a kind of settings may add what it always does."""
        return self.as_properties()


@dataclass(frozen=True, slots=True)
class Report:
    """The effect of the given keys."""

    honoured: Sequence[str] = ()  # the keys that have an effect
    # Accepted keys, each with the reason why it changes nothing.
    without_effect: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)  # unknown keys, each with the nearest known one, or ""
    clamped: Sequence[str] = ()  # sentences about numbers that count as others

    def sentences(self) -> Iterator[str]:
        """A sentence for the operator about each key without effect, or with another one."""
        yield from self.clamped
        for key, reason in self.without_effect.items():
            yield f"{key} has no effect here: {reason}"
        for key, nearest in self.unknown.items():
            yield f"the unknown key {key} is ignored" + (f"; did you mean {nearest}?" if nearest else "")


def build(
    cls: type[S], properties: Mapping[str, str], source: str, over: S | None = None, *, is_strict: bool = False
) -> tuple[S, Report]:
    """Settings from keys and values: those of `over`, or the defaults, with the given ones. `source` is named in
    errors. A strict build refuses a number out of its range, of the keys in CLAMPED too.

    Raises: ConfigError, with a line for each value that is not allowed.
    """
    values: dict[str, Any] = {}
    honoured: list[str] = []
    problems: list[str] = []
    clamped: list[str] = []
    for field_of_key in keyed_fields(cls):
        present = [key for key in field_of_key.metadata["keys"] if key in properties]
        if present:
            honoured += present
            key, kind = present[0], field_of_key.metadata["kind"]
            try:
                values[field_of_key.name] = kind.parse(properties[key].strip())
            except Unreadable as error:
                problems.append(f"{source}: {key} is wrong: {error}")
            except (ValueError, ConfigError) as error:
                if isinstance(error, OutOfRange) and key in cls.CLAMPED and not is_strict:
                    values[field_of_key.name] = error.nearest
                    effect = f"counts as {kind.render(error.nearest)}"
                    clamped.append(f"{key} = {properties[key]!r} {effect}; it must be {kind.allowed}")
                else:
                    problems.append(f"{source}: {key} = {properties[key]!r} is wrong; it must be {kind.allowed}")
    problems += [
        f"{source}: {key} = {properties[key]!r} is not supported yet: {instead}"
        for key in properties
        if (instead := refusal_advice(cls, key)) and properties[key].strip().lower() not in ("false", "disabled", "")
    ]
    if problems:
        raise ConfigError("\n".join(problems))
    honoured += [key for key in properties if refusal_advice(cls, key)]
    without_field = [key for key in properties if key not in honoured]
    without_effect = {key: cls.ACCEPTED[key] for key in without_field if key in cls.ACCEPTED}
    unknown = {key: nearest_key(cls, key) for key in without_field if key not in cls.ACCEPTED}
    settings = over or cls()
    accepted_values = {key: properties[key] for key in properties if key in cls.ACCEPTED or refusal_advice(cls, key)}
    accepted = {**settings.accepted, **accepted_values}
    return replace(settings, accepted=accepted, **values), Report(honoured, without_effect, unknown, clamped)


def keyed_fields(cls: type[Settings]) -> list[Field[Any]]:
    """The fields that are read from a key: those of the class first, then those of the classes it extends."""
    by_name = {item.name: item for item in fields(cls) if "keys" in item.metadata}
    return [by_name[name] for item in cls.__mro__ for name in get_annotations(item) if name in by_name]


def refusal_advice(cls: type[Settings], key: str) -> str | None:
    """The advice for a key of REFUSED; None for other keys, also for one that a pattern matches but a field has."""
    if any(key in field_of_key.metadata["keys"] for field_of_key in keyed_fields(cls)):
        return None
    for pattern, instead in cls.REFUSED.items():
        if key == pattern or (pattern.endswith("*") and key.lower().startswith(pattern[:-1])):
            return instead
    return None


def nearest_key(cls: type[Settings], key: str) -> str:
    known_keys = {name.lower(): name for field_of_key in keyed_fields(cls) for name in field_of_key.metadata["keys"]}
    known_keys |= {name.lower(): name for name in (*cls.ACCEPTED, *cls.REFUSED) if not name.endswith("*")}
    import difflib  # only a mistake needs it

    nearest = difflib.get_close_matches(key.lower(), known_keys, n=1, cutoff=0.75)
    return known_keys[nearest[0]] if nearest else ""


def load(path: Path | str) -> dict[str, str]:
    """The keys and values of a file: TOML if its name ends so, else .properties as Java reads them. Raises:
    ConfigError, it cannot be read, or is not such a file.
    """
    path = Path(path).expanduser()
    try:
        text = read_text(path)
    except OSError as error:
        raise ConfigError(f"cannot read the settings file {path} ({error.strerror}); check its path") from error
    try:
        values = _toml(text) if path.suffix == ".toml" else parse_properties(text)
        return {key: value_of(value, f"{path}: {key}") for key, value in values.items()}
    except ValueError as error:
        raise ConfigError(f"{path} is not a settings file: {error}") from error


def from_environment(prefix: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The keys that the environment sets: RMQ_BROKER_listenPort is listenPort for the prefix RMQ_BROKER_."""
    return {name[len(prefix) :]: value for name, value in environment.items() if name.startswith(prefix)}


def _toml(text: str) -> dict[str, str]:
    import tomllib

    def text_of(key: str, value: object) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, list):
            return ";".join(text_of(key, item) for item in value)
        if isinstance(value, dict):
            raise ValueError(f"[{key}] is a table; write the keys at the top level")
        return str(value)

    return {key: text_of(key, value) for key, value in tomllib.loads(text).items()}
