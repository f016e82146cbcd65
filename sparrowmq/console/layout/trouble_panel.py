"""Troubles of the cluster, as every page shows them: critical ones in red, others in yellow, each with a remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final, TypeVar

from nicegui import ui

from sparrowmq.admin.findings import STOPPING
from sparrowmq.console.layout.page import Part, Update
from sparrowmq.console.layout.view import View
from sparrowmq.console.message_body import time_text
from sparrowmq.console.troubles import Trouble
from sparrowmq.core.safe_text import counted

T = TypeVar("T")
_AWAY: Final = frozenset({"no_answer", "no_master", "missing", "unregistered"})
_REFUSING: Final = STOPPING - _AWAY | {"disk_hangs"}
_MAX_EFFECTS: Final = 4  # that are shown without a click
_SHOWN: Final = 8  # names of topics or groups


class TroublePanel:
    """Draws where it is made; nothing while nothing is wrong."""

    def __init__(self, view: View, troubles: Sequence[Trouble], healthy: str = "") -> None:
        self._view = view
        self._healthy = healthy
        self._place = ui.column().classes("w-full gap-2")
        self._shown: Sequence[Trouble] | None = None
        self.show(troubles)

    def show(self, troubles: Sequence[Trouble]) -> None:
        if list(troubles) == self._shown:
            return
        self._shown = list(troubles)
        self._place.clear()
        self._place.set_visibility(bool(troubles or self._healthy))
        with self._place:
            topics_of = {trouble.title: trouble.topics for trouble in troubles}
            for cause, *effects in _trees(troubles):
                _card(self._view, cause, shows_topics=True)
                with _below(len(effects)):
                    for effect in effects:
                        _card(self._view, effect, shows_topics=effect.topics != topics_of.get(effect.cause))
            if not troubles and self._healthy:
                ui.label(self._healthy).classes("text-sm opacity-80")


def _trees(troubles: Sequence[Trouble]) -> list[list[Trouble]]:
    trees: list[list[Trouble]] = []
    for trouble in troubles:
        if trouble.cause and trees:
            trees[-1].append(trouble)
        else:
            trees.append([trouble])
    return trees


def _below(count: int) -> AbstractContextManager[object]:
    if count <= _MAX_EFFECTS:
        return nullcontext()
    return ui.expansion(f"{count} effects").classes("w-full")


def trouble_panel(of: Callable[[View, T], Sequence[Trouble]]) -> Part[T]:
    def draw(view: View, data: T) -> Update[T]:
        panel = TroublePanel(view, of(view, data))
        return lambda now: panel.show(of(view, now))

    return draw


def _card(view: View, trouble: Trouble, *, shows_topics: bool) -> None:
    color = "trouble-critical" if trouble.is_urgent else "trouble-warning"
    indent = " trouble-effect" if trouble.cause else ""
    with ui.card().classes(f"w-full gap-1 {color}{indent}").props("flat bordered").mark("trouble"):
        with ui.row().classes("items-center gap-2"):
            ui.label("critical" if trouble.is_urgent else "warning").classes("trouble-badge")
            ui.label(trouble.title).classes("font-semibold")
            ui.label(since_text(trouble)).classes("text-sm")
        ui.label(trouble.text).classes("whitespace-pre-wrap")
        if trouble.topics and shows_topics:
            _name_links(view, suffering_text(trouble), "topics", trouble.topics)
        if trouble.groups and shows_topics:
            _name_links(view, "Groups that consume them:", "groups", trouble.groups)
        if trouble.cause:
            ui.label(f"This is an effect of {trouble.cause}").classes("text-sm")
        elif trouble.remedy:
            _remedy(view, trouble.remedy)


def _remedy(view: View, text: str) -> None:
    """Draw a remedy, in which commands are between backticks; a click copies a command."""
    with ui.element("p").classes("remedy text-sm"):
        for index, part in enumerate(f"What to do: {text}".split("`")):
            if index % 2:
                with ui.element("button").props('type="button"').classes("command") as button:
                    ui.label(part)
                button.props["aria-label"] = f"Copy {part}"
                button.on("click", partial(view.copy, "command", part))
            elif part:
                ui.label(part)


def suffering_text(trouble: Trouble) -> str:
    """Return what the topics of a broker suffer."""
    if trouble.name in _AWAY:
        return f"{trouble.queues:,} queues cannot be used, of the topics"
    if trouble.name in _REFUSING:
        return f"{trouble.queues:,} queues take no messages, but can be read, of the topics"
    return f"{trouble.queues:,} queues are at this broker, of the topics"


def _name_links(view: View, words: str, place: str, names: Sequence[str]) -> None:
    with ui.row().classes("items-center gap-2 text-sm"):
        ui.label(words)
        for name in names[:_SHOWN]:
            view.link(name, place, name)
        if len(names) > _SHOWN:
            ui.label(f"and {len(names) - _SHOWN:,} more")


def since_text(trouble: Trouble) -> str:
    """Since when it has been so."""
    word = "at least since" if trouble.is_older else "since"
    return f"{word} {time_text(trouble.since_ms)}"


class LeftOut:
    """A line that names the messages of a topic that a page cannot show; hidden while it shows all."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._line = ui.label().classes("trouble-text").mark("left out")
        self._line.set_visibility(False)

    def show(self, topic: str, silent: Iterable[str] = ()) -> None:
        """Show what is missing of a topic now. `silent`: brokers that did not answer just now."""
        self._line.text = left_out_text(self._view.samples.troubles.left_out_queues(topic, silent))
        self._line.set_visibility(bool(self._line.text))


def left_out_text(left_out: Mapping[str, int]) -> str:
    """The messages that a page cannot show; "" if it shows all."""
    names = [
        f"{counted(queues, 'queue')} of {broker}" if queues else f"those of {broker}"
        for broker, queues in left_out.items()
    ]
    return f"Left out, because no master answers: {', '.join(names)}" if names else ""
