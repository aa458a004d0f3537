"""Networks that random ones once failed on: reshapes, rows called pixels, windows in the padding, damaged launches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.model.onnx_nets import Net
from tests.targets.vta.networks import Builder
from tilewright.cli import main
from tilewright.errors import ProgramError
from tilewright.graph.ir import Graph, Quant
from tilewright.graph.ops import AveragePool2D, Conv2D, FullyConnected, MaxPool2D, Reshape, Window
from tilewright.model.inputs import random
from tilewright.program import file
from tilewright.program.program import HostStep, Launch, Program
from tilewright.report.metrics import Deviation
from tilewright.run import run
from tilewright.targets.bm1684x import TARGET
from tilewright.targets.bm1684x.compiler import assembly
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command
from tilewright.targets.bm1684x.isa.meaning import encoded
from tilewright.targets.bm1684x.isa.operations import DMA, OPERATIONS, TIU
from tilewright.targets.bm1684x.isa.parts import TooFar
from tilewright.targets.bm1684x.isa.stream import TIU_TYPES, EncodedCommand, decode, encode, new_command
from tilewright.targets.bm1684x.launch.image import QueueImage
from tilewright.targets.bm1684x.layouts.layout import Shape, Stride
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.values.dtypes import I8

SEED = 12


def rows_of_an_image(builder: Builder) -> None:
    """The pixels of an image of several rows are the rows of a product; a convolution calls them pixels."""
    x = builder.given((1, 3, 4, 20))
    builder.linear(Conv2D("relu"), x, (8, 1, 1, 20), 0)
    builder.linear(FullyConnected(), x, (5, 20), 0)
    builder.linear(FullyConnected("relu6"), "yn0", (3, 8), 0)


def taps_in_the_padding(builder: Builder) -> None:
    """Each window of the pool holds two codes of four: what is padded must not count. Codes are stored from 0 on."""
    x = builder.given((1, 2, 9, 5))
    builder.tensors[x] = replace(builder.tensors[x], quant=Quant((0.05,), (-128,)))
    window = Window((2, 2), (1, 1), (0, 1, 0, 0), (2, 2))
    builder.layer(AveragePool2D(window), x, quant=builder.tensors[x].quant)


def a_source_that_others_read(builder: Builder) -> None:
    """The product reads through its reshape what the host reads too, and so does the reshape of another product."""
    x = builder.linear(Conv2D(), builder.given((1, 4, 4, 6)), (7, 1, 1, 6), 0)
    flat = builder.layer(Reshape((1, 112)), x, quant=builder.tensors[x].quant)
    reshaped = builder.layer(Reshape((1, 16, 7)), x, quant=builder.tensors[x].quant)
    builder.layer(MaxPool2D(Window((2, 2)), "relu"), x, quant=builder.tensors[x].quant)
    builder.linear(FullyConnected(), flat, (9, 112), 0)
    builder.layer(Reshape((1, 112)), reshaped, quant=builder.tensors[x].quant)


@pytest.mark.parametrize("build", [rows_of_an_image, taps_in_the_padding, a_source_that_others_read])
@pytest.mark.parametrize("batch", ["1", "3"])
def test_networks_equal_the_reference(build: object, batch: str) -> None:
    builder = Builder(np.random.default_rng(SEED))
    build(builder)  # type: ignore[operator]
    graph: Graph = builder.graph()
    program = tw.compile(graph, "bm1684x", overrides={"batch": batch, "lanes": "4"})
    assert program.launches
    shape = graph.tensors[graph.inputs[0]].shape
    x = np.random.default_rng(SEED).integers(-128, 128, (4, *shape)).astype(np.int8)
    result = program.run(x)
    assert result.matches_reference
    assert result.findings == ()


@pytest.mark.parametrize("padding", [(3, 0, 0, 0), (0, 3, 0, 0)])
def test_windows_without_input_are_the_hosts(padding: tuple[int, int, int, int]) -> None:
    """In parts of some rows, such a part would have no rows of the input."""
    builder = Builder(np.random.default_rng(SEED))
    x = builder.given((1, 20, 6, 40))
    builder.linear(Conv2D("relu", Window((3, 1), (1, 1), padding)), x, (30, 3, 1, 40), 0)
    program = tw.compile(builder.graph(), "bm1684x", overrides={"lanes": "4", "banks": "2", "bank_bytes": "4096"})
    (step,) = program.steps
    assert isinstance(step, HostStep)
    assert "a window lies wholly in the padding" in step.reason


def test_reshapes_are_passed_over_by_products_only(tmp_path: Path) -> None:
    """Windows and elements need the shape, products the order only; the reshaped tensor is read twice."""
    net = Net(SEED, np.int8)
    rng = np.random.default_rng(SEED)
    x = net.input((1, 6, 4, 4))
    image = net.op("Reshape", x, net.const([1, 3, 8, 4], np.int64))
    pooled = net.op("MaxPool", net.op("Relu", image), kernel_shape=[2, 2], strides=[2, 2])
    flat = net.op("Flatten", pooled)
    scores = net.op("Gemm", flat, net.const(rng.normal(size=(24, 5)), np.float32))
    whole = net.op("Conv", x, net.const(rng.normal(size=(9, 6, 4, 4)), np.float32), kernel_shape=[4, 4])
    path = net.save(tmp_path / "net.onnx", scores, net.op("Clip", flat), whole, net.op("Add", image, image))
    for batch in ("1", "2"):
        program = tw.compile(path, "bm1684x", overrides={"precision": "f32", "batch": batch})
        assert any(isinstance(step, HostStep) and "reshape" in step.reason for step in program.steps)
        result = program.run(rng.normal(size=(3, 1, 6, 4, 4)).astype(np.float32))
        assert result.findings == ()
        for deviation in result.deviations.values():
            assert deviation.snr_db is None or deviation.snr_db > 110


def test_deviations_of_large_numbers() -> None:
    """A maximum over nothing is float32's lowest number; its square is no float32."""
    lowest = np.array([np.finfo(np.float32).min])
    assert Deviation.of(lowest, lowest).signal == float(lowest[0]) ** 2


def digits() -> tuple[Program, Launch]:
    path = Path(__file__).parents[3] / "examples" / "digits" / "digits.tflite"
    program = tw.compile(path, "bm1684x")
    return program, program.launches[0]


def with_first(name: str, fields: dict[str, int]) -> Program:
    """The digits with another command in the place of the compute engine's first."""
    program, launch = digits()
    image = QueueImage.of(launch, Config())
    queues = {engine: decode(engine, image.queues[engine]) for engine in (TIU, DMA)}
    first = queues[TIU][0]
    code = next((code for code, format_name in TIU_TYPES.items() if format_name == name), first.fields["tsk_typ"])
    given = {"cmd_short": 1, "tsk_typ": code, "cmd_id": 1, **fields}
    new = new_command(TIU, 0, name, True, {})
    queues[TIU][0] = replace(new, fields={**new.fields, **{key: given[key] for key in given if key in new.fields}})
    raw = [encode(queues[engine]) for engine in (TIU, DMA)]
    arrays = {**launch.arrays, "insns": np.concatenate(raw)}
    changed = replace(launch, arrays=arrays, meta={**launch.meta, "tiu_bytes": len(raw[0])})
    return replace(program, steps=(changed, *program.steps[1:]))


SIZES = {f"{operand}_{axis}": 65535 for operand in ("res0", "opd0") for axis in "nchw"}


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("LAR", {}, "not modelled"),
        ("MM", {"tsk_eu_typ": 1, "opd0_n": 1, "opd0_c": 1, "opd0_w": 8, "opd1_w": 8, "res0_c": 1, "res0_w": 8,
                "res0_prec": 2, "opd0_prec": 2, "opd2_const": 1}, "is not an operation of compiled networks"),
        ("AR", {"tsk_eu_typ": 2, "tsk_opd_num": 2, "res0_str": 3, "opd0_str": 3, "opd1_str": 3, **SIZES}, "elements"),
    ],
)  # fmt: skip
def test_commands_of_no_compiled_network_are_refused(
    name: str, fields: dict[str, int], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.save(with_first(name, fields), tmp_path / "odd.twp")
    for command in ("check", "exec"):
        assert main([command, str(tmp_path / "odd.twp")]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


@pytest.mark.parametrize("wrong", [-1, 1 << 30])
def test_layers_that_a_launch_does_not_have_are_refused(wrong: int) -> None:
    program, launch = digits()
    launch.arrays["layers"][0] = wrong
    with pytest.raises(ProgramError, match="does not assign each of its commands to a layer"):
        run(program, np.zeros(program.graph.tensors[program.graph.inputs[0]].shape, np.int8)[None])  # type: ignore[union-attr]


def gathered(size: int) -> Graph:
    """Nine taps of 32 channels become 288 channels: five slots of each lane, with one image per slot."""
    builder = Builder(np.random.default_rng(SEED))
    x = builder.linear(Conv2D(), builder.given((1, size, size, 4)), (32, 1, 1, 4), 0)
    builder.linear(Conv2D("relu", Window((3, 3), (1, 1), (1, 1, 1, 1))), x, (32, 3, 3, 32), 0)
    return builder.graph()


def test_strides_that_no_command_uses_may_be_longer_than_their_fields() -> None:
    """A sample of 5 x 120 x 120 elements, whose stride to the next sample 16 bits cannot hold: there is one sample."""
    graph = gathered(120)
    program = tw.compile(graph, "bm1684x")
    assert [isinstance(step, Launch) for step in program.steps] == [True]
    assert program.run(random(graph).values).matches_reference


def test_operands_that_lie_too_far_apart_are_refused_or_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config()
    far = Tensor(LOCAL_BASE, Shape(2, 3, 300, 300), Stride(90_000, 90_000, 300, 1), I8, config)
    with pytest.raises(TooFar, match=r"the samples of . lie 90000 elements apart; a command takes up to 65535"):
        encoded(Command(OPERATIONS["copy"], {"a": far}, {"y": far}), 0, 0)

    def too_far(command: Command, number: int, needs: int) -> EncodedCommand:
        raise TooFar("encoding", "they lie too far apart")

    monkeypatch.setattr(assembly, "encoded", too_far)
    graph = gathered(6)
    program = TARGET.compile(graph, config, "tflm")
    reasons = [step.reason for step in program.steps if isinstance(step, HostStep)]
    assert reasons == ["they lie too far apart"] * len(graph.nodes)
