"""Networks that keep values from one sample to the next, against TFLite Micro and LiteRT."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.model.tflite_cases import Case, lstm
from tests.model.tflite_stream import CODES, Stream
from tests.model.tflite_writer import run_litert, run_tflm
from tilewright import targets
from tilewright.array import Array
from tilewright.cli import main
from tilewright.errors import ModelError, UnsupportedError
from tilewright.graph import reference
from tilewright.graph.ir import State
from tilewright.model import load
from tilewright.program import file
from tilewright.run import run

SAMPLES = 7


def samples(seed: int = 4) -> Array:
    return np.random.default_rng(seed).integers(-128, 128, (SAMPLES, 1, 1, 4)).astype(np.int8)


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    return Stream().written_to(tmp_path / "stream.tflite")


def test_a_stream_equals_both_frameworks(stream: Path) -> None:
    graph, x = load(stream), samples()
    assert [state.source for state in graph.states] == [site.node.inputs[0] for site in graph.sites()][:1]
    for mode, theirs in (("tflm", run_tflm(stream, {0: x})), ("litert", run_litert(stream, {0: x}))):
        (ours,) = reference.run(graph, x, mode).values()
        np.testing.assert_array_equal(ours, theirs[0])
    (alone,) = reference.run(graph, x, reset=True).values()
    np.testing.assert_array_equal(
        alone, np.concatenate([next(iter(reference.run(graph, s[None]).values())) for s in x])
    )
    assert not np.array_equal(alone, ours)


@pytest.mark.parametrize("target", targets.names())
def test_machines_carry_the_state(target: str, stream: Path, tmp_path: Path) -> None:
    x = samples()
    theirs = run_tflm(stream, {0: x})[0]
    program = tw.compile(stream, target)
    file.save(program, tmp_path / "p.twp")
    for made in (program, file.load(tmp_path / "p.twp")):
        result = run(made, x)
        assert result.matches_reference and result.samples == SAMPLES and result.coverage == 1
        np.testing.assert_array_equal(next(iter(result.outputs.values())), theirs)
    (alone,) = program.run(x, reset=True).outputs.values()
    np.testing.assert_array_equal(alone[0], theirs[0])
    assert not np.array_equal(alone[1:], theirs[1:])


def test_the_command_line_streams_or_resets(stream: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", samples())
    command = ["run", str(stream), "-t", "vta", "-i", str(tmp_path / "x.npy"), "-o", str(tmp_path / "y.npz")]
    outputs = []
    for more in ([], ["--reset"], ["--verify"]):
        assert main([*command, *more]) == 0
        outputs.append(np.load(tmp_path / "y.npz")["outputs"])
    assert "equals the file under LiteRT" in " ".join(capsys.readouterr().out.split())
    assert not np.array_equal(outputs[0], outputs[1]) and np.array_equal(outputs[0], outputs[2])
    assert main(["explain", str(stream), "-t", "vta"]) == 0
    said = capsys.readouterr().out
    assert "\nstate " in said and "\nthen " in said


def test_an_lstm_keeps_its_cells(tmp_path: Path) -> None:
    case = Case(11, "int8")
    inputs, outputs = lstm(case)
    path = case.w.written(tmp_path / "lstm.tflite", inputs, outputs)
    graph = load(path)
    x = np.random.default_rng(3).integers(-128, 128, (SAMPLES, *graph.tensors[graph.inputs[0]].shape)).astype(np.int8)
    assert len(graph.states) == 2
    for reset in (False, True):
        for mode in ("tflm", "litert"):
            theirs = (run_tflm(path, {0: x}, reset) if mode == "tflm" else run_litert(path, {0: x}, mode, reset))[0]
            (ours,) = reference.run(graph, x, mode, reset=reset).values()
            np.testing.assert_array_equal(ours, theirs)


def test_what_is_wrong_with_variables_is_named(tmp_path: Path) -> None:
    path = tmp_path / "wrong.tflite"
    with pytest.raises(ModelError, match=r"wrong\.tflite: state 't0_2': is int8\[1,2,4\] in 't0_2', but int8\[1,1,4\]"):
        load(Stream().written_to(path, np.zeros((1, 1, 4), np.int8)))
    bare = Stream()
    x, y = bare.tensor((1, 4), "int8", CODES), bare.tensor((1, 4), "int8", CODES)
    held = bare.tensor((1, 4), "int8", CODES)
    bare.op("READ_VARIABLE", [bare.handle(0)], [held])
    bare.op("ADD", [x, held], [y], "AddOptions")
    with pytest.raises(ModelError, match="is a variable that nothing initialises"):
        load(bare.written(path, [x], [y]))
    other = Stream()
    x, y = other.tensor((1, 4), "int8", CODES), other.tensor((1, 4), "int8", CODES)
    other.op("READ_VARIABLE", [x], [y])
    with pytest.raises(ModelError, match="takes 't0_0', which no VAR_HANDLE gives"):
        load(other.written(path, [x], [y]))
    computed = Stream()
    one = computed.constant(np.zeros((1, 4), np.int8), CODES, 1)
    computed.op("ADD", [one, one], [computed.tensor((1, 4), "int8", CODES, graph=1)], "AddOptions", 1)
    computed.op("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=1)
    x, y = computed.tensor((1, 4), "int8", CODES), computed.tensor((1, 4), "int8", CODES)
    computed.op("RELU", [x], [y])
    with pytest.raises(UnsupportedError, match="initialises variables with ADD"):
        load(computed.written(path, [x], [y]))


def test_states_of_a_graph_are_checked(stream: Path) -> None:
    from dataclasses import replace

    graph = load(stream)
    (state,) = graph.states
    for changed, message in (
        (State(state.source, state.result, state.source), "has no constant initial value"),
        (State(state.initial, state.result, state.initial), "is a constant, an input"),
        (State(state.source, "nowhere", state.initial), "'nowhere' is not a tensor"),
    ):
        with pytest.raises(ModelError, match=message):
            replace(graph, states=(changed,)).validate()
    with pytest.raises(ModelError, match="the source of another state"):
        replace(graph, states=(state, state)).validate()
