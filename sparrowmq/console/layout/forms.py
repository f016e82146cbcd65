"""Fields described by data. Dialogs and search pages draw the same ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import msgspec
from nicegui import ui
from nicegui.elements.mixins.value_element import ValueElement

from sparrowmq.console.layout.view import View

Kind = Literal["text", "long text", "secret", "number", "choice", "box"]
Choices = Sequence[str] | Mapping[str, str]
Values = dict[str, Any]
_TYPED: Final = 15  # with more choices the visitor may type to find one


@dataclass(frozen=True, slots=True)
class Field:
    """One field.

    Attributes:
        name: in the values of the form, and in the address.
        choices: of a choice; a mapping gives each a label.
        shown_if: hides the field while the other fields' values do not fit.
        is_logged: the log may contain the value.
    """

    name: str
    label: str
    kind: Kind = "text"
    value: Any = None
    choices: Choices = ()
    least: int | None = None
    hint: str = ""
    shown_if: Callable[[Values], bool] | None = None
    is_logged: bool = True


class Form:
    """The fields on a page; draws them where it is made."""

    def __init__(self, fields: Sequence[Field], classes: str = "w-full") -> None:
        self._fields = {each.name: each for each in fields}
        self._elements = {each.name: _element(each) for each in fields}
        for name, element in self._elements.items():
            element.classes(classes)
            if self._fields[name].hint:
                element.props["placeholder"] = self._fields[name].hint
        self.on_change(self._show_fields)
        self._show_fields()

    @property
    def values(self) -> Values:
        """By name: texts without blanks around them, whole numbers or None, and the boxes' True or False."""
        return {name: _value(each, self._elements[name].value) for name, each in self._fields.items()}

    def set(self, name: str, value: Any) -> None:
        self._elements[name].value = value

    def offer(self, name: str, choices: Sequence[str]) -> None:
        """Replace the choices of a field, and choose the first."""
        element = self._elements[name]
        assert isinstance(element, ui.select)
        element.set_options(list(choices), value=choices[0] if choices else None)

    def on_change(self, then: Callable[[], object], pause_ms: int = 0) -> None:
        """Call back after each change; with a pause only once the visitor stops typing for so long."""
        for each in self._elements.values():
            if pause_ms:
                each.props(f"debounce={pause_ms}")
            each.on_value_change(then)

    def on_enter(self, then: Callable[[], object]) -> None:
        """Call back when the visitor presses Enter where it means nothing else: in a line of text or a number."""
        for name, each in self._elements.items():
            if self._fields[name].kind in ("text", "secret", "number"):
                each.on("keydown.enter", then)

    def _show_fields(self) -> None:
        values = self.values
        for name, each in self._fields.items():
            if each.shown_if is not None:
                self._elements[name].set_visibility(each.shown_if(values))


def search_form(view: View, fields: Sequence[Field]) -> Form:
    """The fields of a search, filled from the address; they stand in a row."""
    filled = [replace(each, value=view.query.get(each.name, each.value)) for each in fields]
    return Form(filled, "grow min-w-[10rem]")


def properties_in(text: str) -> dict[str, str]:
    """Properties as a form or JSON has them: a=1, b=2. Raises: ValueError."""
    if text.strip().startswith("{"):
        try:
            return msgspec.json.decode(text, type=dict[str, str])
        except msgspec.MsgspecError as error:
            raise ValueError(f"the properties are not a JSON object of texts: {error}") from None
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    for name, separator, _ in pairs:
        if not separator or not name.strip():
            raise ValueError(f"the property {name.strip()!r} has no value; write name=value")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _element(field: Field) -> ValueElement[Any]:
    match field.kind:
        case "long text":
            area = ui.textarea(field.label, value=field.value or "")
            return area.props("outlined autogrow").classes("mono")
        case "number":
            number = ui.number(field.label, value=field.value, min=field.least, precision=0)
            return number.props("outlined dense")
        case "choice":
            choices = dict(field.choices) if isinstance(field.choices, Mapping) else list(field.choices)
            is_typed = len(choices) >= _TYPED
            select = ui.select(choices, label=field.label, value=field.value, with_input=is_typed)
            return select.props("outlined dense")
        case "box":
            return ui.checkbox(field.label, value=bool(field.value))
    is_secret = field.kind == "secret"
    return ui.input(field.label, value=field.value or "", password=is_secret).props("outlined dense")


def _value(field: Field, value: Any) -> Any:
    match field.kind:
        case "text":
            return (value or "").strip()
        case "long text" | "secret":
            return value or ""
        case "number":
            return None if value is None else int(value)
    return value
