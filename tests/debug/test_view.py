"""The view with panes, driven by Textual's pilot: keys move, commands are typed, the panes show the moment."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, RichLog, Static

from tests.debug.planted import right, sample
from tilewright.cli import main
from tilewright.debug import prompt
from tilewright.debug.session import Session
from tilewright.debug.verbs import BY_NAME
from tilewright.debug.view import KEYS, View
from tilewright.errors import ConfigError
from tilewright.install import hint
from tilewright.program.program import Launch


def played(act: Callable[[View, Pilot[None]], Awaitable[None]], target: str = "vta") -> None:
    async def run() -> None:
        app = prompt.view(Session(right("upstream" if target == "vta" else "", target), sample()))
        async with app.run_test(size=(140, 40)) as pilot:
            await pilot.pause()
            await act(app, pilot)

    asyncio.run(run())


async def typed(pilot: Pilot[None], line: str) -> None:
    await pilot.press("colon")
    app = pilot.app
    assert isinstance(app.focused, Input)
    app.focused.value = line
    await pilot.press("enter")


def pane(app: View, name: str) -> str:
    return str(app.query_one(f"#{name}", Static).render())


def answers(app: View) -> str:
    return "\n".join(strip.text for strip in app.query_one("#answers", RichLog).lines)


def test_keys_move_and_the_panes_follow() -> None:
    async def act(app: View, pilot: Pilot[None]) -> None:
        assert "> #0 " in pane(app, "left")
        assert "nothing is written yet" in pane(app, "memory")
        app.session.to(8)
        await pilot.press("s")
        assert app.session.where().step == 9
        assert "> #9 " in pane(app, "left") and "  #0 " in pane(app, "left")
        assert "store     #9 until cycle" in pane(app, "units")
        assert app.query_one("#memory").border_title == app.session.written == "acc[0:16]"
        assert "acc[0:16]: int32 [16, 1, 16]" in pane(app, "memory")
        await pilot.press("b")
        assert "> #8 " in pane(app, "left")
        await pilot.press("end")
        assert "> end of the launch" in pane(app, "left")
        await pilot.press("home", "w")
        assert app.session.where().position == 0
        assert "> why" in answers(app)

    played(act)


def test_commands_are_typed() -> None:
    async def act(app: View, pilot: Pilot[None]) -> None:
        await typed(pilot, "to 12")
        assert app.session.where().step == 12
        await typed(pilot, "show acc[3,0,2]")
        value = app.session.read("acc[3,0,2]")
        assert "acc[3,0,2]" in pane(app, "memory") and str(value) in pane(app, "memory")
        await pilot.press("s")
        assert app.query_one("#memory").border_title == "acc[3,0,2]"
        await typed(pilot, "show")
        assert app.query_one("#memory").border_title == app.session.written
        await typed(pilot, "nothing")
        assert "there is no such command" in answers(app)
        await typed(pilot, "show acc[99999]")
        assert "is outside" in pane(app, "memory")
        await pilot.press("colon", "q", "escape")
        assert app.focused is None and app.query_one(Input).value == "q"
        await pilot.resize_terminal(80, 24)
        assert "> #13 " in pane(app, "left")

    played(act)


def test_every_key_answers() -> None:
    async def act(app: View, pilot: Pilot[None]) -> None:
        for keys, command, _ in KEYS:
            assert command.split()[0] in BY_NAME
            await pilot.press(keys.split(",")[0])
        assert "every launch gives the values of the reference" in answers(app)

    played(act, "bm1684x")


def test_hostile_names_are_printable() -> None:
    """Escape sequences, marks of direction and Textual's own markup in the names of a program file."""
    hostile = "\x1b]0;x\x07\u202e\x9b2J[bold]x"
    made = right("upstream")
    steps = [replace(step, name=f"{step.name}{hostile}") if isinstance(step, Launch) else step for step in made.steps]
    assert made.graph
    session = Session(replace(made, steps=tuple(steps), graph=replace(made.graph, name=hostile)), sample())

    async def run() -> None:
        app = prompt.view(session)
        async with app.run_test(size=(200, 40)) as pilot:
            await pilot.pause()
            await typed(pilot, "launches")
            await typed(pilot, f"layer {hostile}")
            await pilot.press("s")
            await pilot.pause()
            drawn = "".join(segment.text for line in app.screen._compositor.render_strips() for segment in line)
            assert drawn.isprintable() and "]0;x" in drawn and "[bold]" in drawn

    asyncio.run(run())


def test_quit() -> None:
    async def act(app: View, pilot: Pilot[None]) -> None:
        await typed(pilot, "quit")
        assert app._exit

    played(act)


def test_without_textual_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tilewright.debug.view", None)
    with pytest.raises(ConfigError, match=re.escape(hint("debug"))):
        prompt.view(Session(right(), sample()))


def test_the_view_needs_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["debug", "examples/digits/digits.tflite", "-t", "vta", "--view"]) == 2
    assert "needs a terminal" in capsys.readouterr().err
