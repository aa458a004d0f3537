"""The view of a session in a terminal: the listing on the left; units, queues and memory on the right; commands below.

Keys run the most common commands; the user types all others. By default, the memory pane shows the place that the last
instruction wrote. `show PLACE` selects another place, and `show` without a place returns to the default.
"""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.markup import escape
from textual.widgets import Footer, Input, RichLog, Static

from tilewright.debug.session import Session
from tilewright.debug.text import render
from tilewright.debug.verbs import BY_NAME, QUIT, obey
from tilewright.errors import TilewrightError, plain

#: Each row has keys, their command, and the name of the command at the bottom of the screen.
KEYS = (
    ("s,down", "step", "step"),
    ("b,up", "back", "back"),
    ("pagedown", "step 20", "+20"),
    ("pageup", "back 20", "-20"),
    ("home", "start", "start"),
    ("end", "end", "end"),
    ("r", "run", "run"),
    ("e", "reverse", "reverse"),
    ("i", "insn", "insn"),
    ("w", "why", "why"),
    ("f", "findings", "findings"),
    ("d", "differs", "differs"),
    ("x", "suspects", "suspects"),
)
SHOW = ("show", "print", "p")


class View(App[None]):
    """A session in a terminal. The memory pane shows `place`, or the last written place if `place` is ""."""

    CSS = """
    #panes { height: 1fr; }
    #left, #units, #memory { text-wrap: nowrap; text-overflow: ellipsis; }
    #left { width: 58%; height: 100%; border: round $primary; padding: 0 1; }
    #right { width: 42%; }
    #units { height: auto; max-height: 45%; border: round $secondary; padding: 0 1; }
    #memory { height: 1fr; border: round $accent; padding: 0 1; }
    #answers { height: 11; border: round $surface-lighten-2; padding: 0 1; }
    Input { border: none; height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *((key, f"obey('{command}')", name) for key, command, name in KEYS),
        ("colon", "type", "command"),
        ("q", "quit", "quit"),
    ]
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self.place = ""

    def compose(self) -> ComposeResult:
        with Horizontal(id="panes"):
            yield Static(id="left", markup=False)
            with Vertical(id="right"):
                yield Static(id="units", markup=False)
                yield Static(id="memory", markup=False)
        yield RichLog(id="answers", wrap=True, markup=False)
        yield Input(placeholder="a command; help lists them all")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#answers", RichLog).can_focus = False
        self.query_one("#left").border_title = escape(plain(self.session.head.partition(";")[0]))
        self.query_one("#units").border_title = "units and queues"
        self.call_after_refresh(self.redraw)

    def on_resize(self) -> None:
        self.call_after_refresh(self.redraw)

    def action_type(self) -> None:
        self.query_one(Input).focus()

    def action_obey(self, command: str) -> None:
        """Run a command and redraw all panes. Print the answer, unless the panes already show it (after a movement)."""
        name, _, place = command.partition(" ")
        try:
            if name in SHOW:
                self.place = place.strip()
            else:
                answer = obey(self.session, command)[0]
                moves = name in BY_NAME and BY_NAME[name].group == "Move"
                if not moves or not answer.startswith("#") or "cannot go on" in answer:
                    self._say(command, answer, "")
        except TilewrightError as error:
            self._say(command, str(error), "red")
        self.redraw()

    def _say(self, command: str, told: str, style: str) -> None:
        answers = self.query_one("#answers", RichLog)
        width = answers.scrollable_content_region.width or None
        answers.write(Text(plain(f"> {command}"), "bold"), width)
        answers.write(Text(told, style), width)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        command = event.value.strip()
        event.input.value = ""
        self.set_focus(None)
        if command in (QUIT, "exit"):
            self.exit()
        elif command:
            self.action_obey(command)

    def on_key(self, event: object) -> None:
        if getattr(event, "key", "") == "escape":
            self.set_focus(None)

    def redraw(self) -> None:
        self.query_one("#left", Static).update(self._listing())
        filled = [queue for queue in self.session.queues() if queue.tokens]
        self.query_one("#units", Static).update("\n".join(map(render, [*self.session.units(), *filled])))
        memory = self.query_one("#memory", Static)
        place = self.place or self.session.written
        memory.border_title = escape(plain(place)) or "memory"
        try:
            content = obey(self.session, f"show {place}")[0] if place else "nothing is written yet"
        except TilewrightError as error:
            content = str(error)
        memory.update(content)

    def _listing(self) -> Text:
        session = self.session
        pane = self.query_one("#left", Static)
        now = session.where()
        rows = max(1, pane.size.height)
        count = len(session.walk.table)
        step = count if now.step is None else now.step
        # Show the next instruction in the middle, except near the start and the end of the launch.
        first = max(0, min(step - rows // 2, count + 1 - rows))
        lines = Text()
        layer = ""
        for row in session.listing(first, rows):
            mark = ">" if row.step == now.step else " "
            style = "reverse bold" if row.step == now.step else "dim" if row.position < now.position else ""
            lines.append(f"{mark} #{row.step:<6}{row.unit:8} {plain(row.text)}\n", style)
            layer = row.layer if row.step == now.step else layer
        if now.step is None:
            lines.append("> end of the launch" + (f", {now.cycle} cycles" if now.cycle is not None else ""), "reverse")
        cycle = f", cycle {now.cycle}" if now.cycle is not None else ""
        pane.border_subtitle = escape(plain(f"{now.launch}: {now.position} of {now.of}, {layer}{cycle}"))
        return lines
