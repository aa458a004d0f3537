"""The prompt: keys go in through prompt_toolkit's own input for tests."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("prompt_toolkit")
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from tests.debug.planted import right, sample
from tilewright.debug import prompt
from tilewright.debug.session import Session


def typed(keys: str) -> list[str]:
    """Return what a session says before the prompt and after each line that is typed."""
    said: list[str] = []
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text(keys)
        prompt.converse(Session(right(), sample()), said.append)
    return said


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))


def test_lines_are_obeyed_until_the_end() -> None:
    head, before, stepped, again, wrong, moved = typed("step\r\rfly\rto 3\rquit\rstep\r")
    assert "instructions run in stream order" in head
    assert [text.split()[0] for text in (before, stepped, again, moved)] == ["#0", "#1", "#2", "#3"]
    assert wrong == "fly: there is no such command; see `help`"


def test_commands_and_their_words_are_completed() -> None:
    session = Session(right(), sample())
    offered = prompt.completer(session)

    def after(text: str) -> set[str]:
        return {found.text for found in offered.get_completions(Document(text), CompleteEvent())}

    assert "memories" in after("mem")
    assert "conv2d_0" in after("layer c")
    assert {"acc", "dram.wgt", "t0"} <= after("show ")


def test_the_history_is_kept(tmp_path: Path) -> None:
    typed("where\rquit\r")
    assert "where" in (tmp_path / "debug_history").read_text()
    *_, again = typed("\x1b[A\x1b[A\r\x04")  # two lines up: before `quit`
    assert again.startswith("#0")
