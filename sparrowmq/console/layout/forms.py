"""Fields described by data, in search pages and in the one dialog of all actions.

The dialog asks for values, carries an action out, and shows the result. A page leaves out the button of an action that
its visitor may not run. `Action.carry_out` checks the role again each time, and logs who did what.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import msgspec
from nicegui import context, ui
from nicegui.elements.mixins.value_element import ValueElement

from sparrowmq.console.layout.view import View
from sparrowmq.console.users import Role

log = logging.getLogger(__name__)
Kind = Literal["text", "long text", "secret", "number", "choice", "box"]
Choices = Sequence[str] | Mapping[str, str]
Values = dict[str, Any]
_MIN_TYPED_CHOICES: Final = 15  # choices from which on the visitor may type to find one
PLAIN: Final = "outline no-caps dense"


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    label: str
    kind: Kind = "text"
    value: Any = None
    choices: Choices = ()  # a mapping gives each a label
    least: int | None = None
    hint: str = ""
    shown_if: Callable[[Values], bool] | None = None  # hides the field while the other fields' values do not fit
    is_logged: bool = True


class Form:
    """The fields on a page; draws them where it is made."""

    def __init__(self, fields: Sequence[Field], classes: str = "w-full") -> None:
        self._fields = {field.name: field for field in fields}
        self._elements = {field.name: _element(field) for field in fields}
        for name, element in self._elements.items():
            element.classes(classes)
            if self._fields[name].hint:
                element.props["placeholder"] = self._fields[name].hint
        self.on_change(self._show_fields)
        self._show_fields()

    @property
    def values(self) -> Values:
        """By name: texts without blanks around them, whole numbers or None, and the boxes' True or False."""
        return {name: _value(field, self._elements[name].value) for name, field in self._fields.items()}

    def set(self, name: str, value: Any) -> None:
        self._elements[name].value = value

    def offer(self, name: str, choices: Sequence[str]) -> None:
        """Replace the choices of a field, and choose the first."""
        element = self._elements[name]
        assert isinstance(element, ui.select)
        element.set_options(list(choices), value=choices[0] if choices else None)

    def on_change(self, callback: Callable[[], object], pause_ms: int = 0) -> None:
        """Call back after each change; with a pause only once the visitor stops typing for so long."""
        for element in self._elements.values():
            if pause_ms:
                element.props(f"debounce={pause_ms}")
            element.on_value_change(callback)

    def on_enter(self, callback: Callable[[], object]) -> None:
        """Call back when the visitor presses Enter where it means nothing else: in a line of text or a number."""
        for name, element in self._elements.items():
            if self._fields[name].kind in ("text", "secret", "number"):
                element.on("keydown.enter", callback)

    def _show_fields(self) -> None:
        values = self.values
        for name, field in self._fields.items():
            if field.shown_if is not None:
                self._elements[name].set_visibility(field.shown_if(values))


def search_form(view: View, fields: Sequence[Field]) -> Form:
    """The fields of a search, filled from the address; they stand in a row."""
    filled_fields = [replace(field, value=view.query.get(field.name, field.value)) for field in fields]
    return Form(filled_fields, "grow min-w-[10rem]")


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
            is_typed = len(choices) >= _MIN_TYPED_CHOICES
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


class DialogForm(Form):
    """The fields of an open dialog, and the line below them for progress and results."""

    def __init__(self, fields: Sequence[Field]) -> None:
        super().__init__(fields)
        self._line = ui.label().classes("text-sm font-medium").mark("effect")
        self._line.set_visibility(False)

    def report(self, text: str) -> None:
        self._line.text = text
        self._line.set_visibility(bool(text))


@dataclass(frozen=True, slots=True)
class Check:
    """A button inside the dialog that changes nothing, such as a dry run; its work returns a text to show."""

    label: str
    icon: str
    run: Callable[[View, DialogForm], Coroutine[Any, Any, str]]


@dataclass(frozen=True, slots=True)
class Action:
    """Something that a visitor may change, and the dialog that asks for it."""

    name: str  # "delete topic"; in the log and in refusals
    role: Role
    label: str
    icon: str
    run: Callable[[View, DialogForm], Awaitable[object]]
    subject: str = ""
    title: str = ""
    explanation: str = ""
    fields: Sequence[Field] = ()
    submit: str = "Save"
    color: str = "primary"
    done: str = ""  # the text to show at the end, with values of fields as in "{name}"; or `run` returns the text
    next_view: Callable[[Values], tuple[str, ...]] | None = (
        None  # the view to show at the end; without one the page again
    )
    typed_name: Callable[[Values], str] | None = None  # a name that the visitor must type first
    effect: Callable[[Values], str] | None = None  # a text below the fields that follows their values
    check: Check | None = None

    async def carry_out(self, view: View, form: DialogForm) -> str:
        """Run the action; returns the text to show. Raises: Forbidden, and what `run` raises."""
        view.check_role(self.role, self.name)
        # Names and numbers; bodies, secrets and settings stay out of the log.
        logged_names = [field.name for field in self.fields if field.is_logged and field.kind != "secret"]
        words = [f"{name}={form.values[name]}" for name in logged_names if _is_plain(form.values[name])]
        log.info("%s: %s", view.session.name, " ".join([self.name, *filter(None, [self.subject]), *words]))
        try:
            result = await self.run(view, form)
        finally:
            view.cluster.forget()
        return result if isinstance(result, str) else self.done.format_map(form.values)

    def button(self, view: View, props: str = PLAIN) -> None:
        """Draw the button that opens the dialog, if the visitor may run the action."""
        if view.may(self.role):
            red = " color=negative" if self.color == "negative" else ""
            ui.button(self.label, icon=self.icon, on_click=lambda: self._open(view)).props(props + red)

    def _open(self, view: View) -> None:
        with context.client.content:
            _Dialog(view, self)


def _is_plain(value: object) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and 0 < len(value) < 256 and value.isprintable())


class _Dialog:
    """A dialog that is open; it closes once its action succeeds."""

    def __init__(self, view: View, action: Action) -> None:
        self._view = view
        self._action = action
        self._dialog = ui.dialog(value=True)
        self._dialog.props["aria-label"] = action.title or action.label
        with self._dialog, ui.card().classes("w-[32rem] max-w-full gap-3"):
            ui.label(action.title or action.label).classes("text-lg font-semibold")
            if action.explanation:
                ui.label(action.explanation).classes("text-sm opacity-80")
            self._form = DialogForm(action.fields)
            if action.typed_name is not None:
                self._name_input = ui.input().classes("w-full").props("outlined dense autofocus")
                self._name_input.on("keydown.enter", self._submit)
            if action.check is not None:
                ui.button(action.check.label, icon=action.check.icon, on_click=self._check).props(PLAIN)
            with ui.row().classes("w-full justify-end gap-2"):
                ui.button("Cancel", on_click=self._dialog.close).props("flat")
                self._button = ui.button(action.submit, on_click=self._submit).props(f"color={action.color}")
        self._form.on_change(self._show_effect)
        self._form.on_enter(self._submit)
        self._show_effect()
        self._dialog.on("hide", self._on_hide)

    def _show_effect(self) -> None:
        if self._action.effect is not None:
            self._form.report(self._action.effect(self._form.values))
        if self._action.typed_name is not None:
            self._name_input.props["label"] = f"Type {self._action.typed_name(self._form.values)} to confirm"

    def _on_hide(self) -> None:
        if self._button.enabled:  # an action that still runs shows its end
            self._dialog.delete()

    async def _check(self) -> None:
        assert self._action.check is not None
        self._form.report(await self._view.attempt(self._action.check.run(self._view, self._form)) or "")

    async def _submit(self) -> None:
        action, values = self._action, self._form.values
        if not self._button.enabled:  # Enter was pressed twice
            return
        if action.typed_name is not None and self._name_input.value != (name := action.typed_name(values)):
            self._view.complain(f"type {name} to confirm")
            return
        self._button.disable()
        result_text = await self._view.attempt(action.carry_out(self._view, self._form))
        self._button.enable()
        if result_text is None:
            return
        if action.next_view is not None:
            self._view.say_on_next_page(result_text)
            self._view.go(*action.next_view(values))
            return
        self._view.say(result_text)
        if self._view.is_open:
            self._dialog.close()
            await self._view.redraw()
