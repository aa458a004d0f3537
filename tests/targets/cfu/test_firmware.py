"""Firmware: every variant computes the reference's codes, whichever compiler builds it; what is no model is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.targets.cfu.ladder import ladder
from tests.targets.cfu.networks import network
from tilewright import contract
from tilewright.errors import ConfigError, MachineError, ProgramError, UnsupportedError
from tilewright.graph.ir import Graph, Node, Quant, Tensor
from tilewright.graph.ops import Add, AveragePool2D, Conv2D, Window
from tilewright.program.program import Launch, Program
from tilewright.run import run
from tilewright.schedule import Lived
from tilewright.sim.passes import RunOptions
from tilewright.targets import get
from tilewright.targets.cfu.compiler import compile as compiler
from tilewright.targets.cfu.compiler import firmware, layout
from tilewright.targets.cfu.compiler.compile import arena
from tilewright.targets.cfu.compiler.records import Operator, in_place
from tilewright.targets.cfu.compiler.variants import VARIANTS
from tilewright.targets.cfu.config import BEYOND, EXTENSIONS, Config
from tilewright.targets.cfu.firmware_image import FirmwareImage

COMPILERS = firmware.compilers()
pytestmark = pytest.mark.riscv


def compiled(graph: Graph, variant: str, how: firmware.Compiler | None = None) -> Program:
    extensions = BEYOND if variant in ("coupled", "tuned") else VARIANTS[variant].extensions
    config = Config(firmware=variant, extensions=",".join(extensions))
    return compiler.compile_graph(graph, config, "tflm", VARIANTS[variant], how)


@pytest.mark.parametrize("how", COMPILERS, ids=lambda found: str(found.name))
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_computes_the_reference(variant: str, how: firmware.Compiler) -> None:
    codes = np.random.default_rng(3).integers(-128, 128, (2, 1, 8, 8, 16)).astype(np.int8)
    result = run(compiled(network(2), variant, how), codes)
    assert (result.matches_reference, result.findings) == (True, ())
    assert all(layer.where == "cfu" and layer.cycles for layer in result.layers)
    result = run(compiled(contract.network(), variant, how), contract.inputs()[:1])
    assert (result.matches_reference, result.findings) == (True, ())


@pytest.mark.skipif(all(how.name != "zig" for how in COMPILERS), reason="needs clang: pip install ziglang")
def test_the_ladder_slows_clang_down_and_stays_exact() -> None:
    how = next(how for how in COMPILERS if how.name == "zig")
    codes = np.random.default_rng(3).integers(-128, 128, (1, 1, 8, 8, 16)).astype(np.int8)
    for step, flags in ladder.AS_GCC.items():
        plain, slow = (
            run(compiled(network(2), step, replace(how, flags=(*how.flags, *more))), codes) for more in ((), flags)
        )
        assert (slow.matches_reference, slow.findings) == (True, ())
        ratio = slow.cycles / plain.cycles
        assert ratio > (1.15 if step == "baseline" else 1.0), (step, ratio)


@pytest.mark.parametrize("firmware", ["coupled", "tuned"])
@pytest.mark.parametrize("extensions", [*EXTENSIONS, *(",".join(BEYOND[: n + 1]) for n in range(1, len(BEYOND)))])
def test_extensions_alone_and_in_sequence(extensions: str, firmware: str) -> None:
    codes = np.random.default_rng(4).integers(-128, 128, (2, 1, 8, 8, 16)).astype(np.int8)
    config = get("cfu").config(None, {"extensions": extensions, "firmware": firmware})
    program = get("cfu").compile(network(4), config, "tflm")
    result = run(program, codes)
    assert (result.matches_reference, result.findings) == (True, ())
    assert list(get("cfu").check(program)) == []


def convolutions(*channels: int) -> Graph:
    """1x1 convolutions, one after the other, with these numbers of channels."""
    rng = np.random.default_rng(7)
    tensors = {"x": Tensor("x", (1, 3, 3, 8), "int8", Quant((0.05,), (-3,)))}
    nodes, depth, x = [], 8, "x"
    for index, count in enumerate(channels):
        name, scales = f"y{index}", tuple(float(np.float32(s)) for s in rng.uniform(0.002, 0.02, count))
        data = rng.integers(-127, 128, (count, 1, 1, depth)).astype(np.int8)
        weights = Quant(scales, (0,) * count, 0)
        tensors[f"{name}/w"] = Tensor(f"{name}/w", data.shape, "int8", weights, data)
        bias = rng.integers(-3000, 3000, count).astype(np.int32)
        tensors[f"{name}/b"] = Tensor(f"{name}/b", bias.shape, "int32", None, bias)
        tensors[name] = Tensor(name, (1, 3, 3, count), "int8", Quant((0.5,), (index,)))
        nodes.append(Node(f"node {name}", Conv2D("none", Window()), (x, f"{name}/w", f"{name}/b"), (name,)))
        depth, x = count, name
    return Graph("channels", tensors, tuple(nodes), ("x",), (x,)).validate()


def test_channel_tables_alternate_and_late_ones_wait() -> None:
    """The tables have 256 entries: the channels of two layers fit, or those of the second are fetched late."""
    program = compiled(convolutions(200, 56, 120, 140, 256, 16, 240), "tuned")
    records = FirmwareImage.of(program.launches[0]).records
    late = [bool(record["coupled"] & layout.Coupled.LATE) for record in records]
    assert late == [False, False, False, True, True, True, False]
    assert [record["coupled"] & layout.Coupled.FETCH for record in records] == [layout.Coupled.FETCH, *[0] * 6]
    result = run(program, np.random.default_rng(8).integers(-128, 128, (2, 1, 3, 3, 8)).astype(np.int8))
    assert (result.matches_reference, result.findings) == (True, ())


def test_extents_of_a_whole_image_are_no_limit() -> None:
    """The CFU's registers have 10 bits for a size and 4 for a stride. This image has 1,024 pixels."""
    shapes = {"x": (1, 32, 32, 4), "sum": (1, 32, 32, 4), "mean": (1, 1, 1, 4)}
    tensors = {name: Tensor(name, shape, "int8", Quant((0.05,), (0,))) for name, shape in shapes.items()}
    mean = AveragePool2D(Window((32, 32), (32, 32)))
    nodes = (Node("add", Add("none"), ("x", "x"), ("sum",)), Node("mean", mean, ("sum",), ("mean",)))
    program = compiled(Graph("image", tensors, nodes, ("x",), ("mean",)).validate(), "coupled")
    assert all(record["coupled"] for record in FirmwareImage.of(program.launches[0]).records)
    result = run(program, np.random.default_rng(6).integers(-128, 128, (1, 1, 32, 32, 4)).astype(np.int8))
    assert (result.matches_reference, result.findings) == (True, ())


def test_copies_of_inner_tensors_are_left_out() -> None:
    operators = {
        "pool": Operator(layout.Kind.AVERAGE_POOL, {"input": "x", "output": "a"}),
        "one": Operator(layout.Kind.COPY, {"input": "a", "output": "b"}),
        "two": Operator(layout.Kind.COPY, {"input": "b", "output": "c"}),
        "dense": Operator(layout.Kind.FULLY_CONNECTED, {"input": "c", "output": "y"}),
        "last": Operator(layout.Kind.COPY, {"input": "y", "output": "z"}),
    }
    found = [dict(made.activations) for made in in_place(operators, {"x", "z"}).values()]
    assert found[:4] == [
        {"input": "x", "output": "a"},
        {"input": "a", "output": "a"},
        {"input": "a", "output": "a"},
        {"input": "a", "output": "y"},
    ]
    assert found[4] == {"input": "y", "output": "z"}


#: More than one choice at once, at the smallest buffers.
CORNERS = {
    "all4": {"array": "4", "transfer": "addressed", "readout": "random", "start": "blocking", "srdhm": "single"},
    "small4": {"array": "4", "transfer": "counter", "buffer_rows": "16"},
    "small8": {"array": "8", "transfer": "addressed", "buffer_rows": "16", "readout": "random"},
    "small32": {"array": "32", "buffer_rows": "16"},
    "random32": {"array": "32", "transfer": "addressed", "readout": "random", "buffer_rows": "64"},
    "large": {"buffer_rows": "65536", "start": "blocking"},
}
#: One of each choice; each is a firmware of its own to compile.
QUICK = ("addressed8", "counter4", "single", "blocking", "all4", "small4", "random32")
FOLLOWED = [
    pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in (*ladder.ALTERNATIVES, *CORNERS)
]


@pytest.mark.parametrize("name", FOLLOWED)
def test_firmware_follows_the_array(name: str) -> None:
    """Every kernel on the array, on each alternative to the published one."""
    codes = np.random.default_rng(5).integers(-128, 128, (1, 1, 8, 8, 16)).astype(np.int8)
    graphs = ((network(2), codes), (contract.network(), contract.inputs()[:1]))
    runs = [(variant, COMPILERS[0]) for variant in ("buffered", "published", "dense_array")]
    if name in CORNERS:
        runs += [("published", how) for how in COMPILERS[1:]]
    for variant, how in runs:
        config = Config.read(None, {**(ladder.ALTERNATIVES | CORNERS)[name], "firmware": variant})
        for graph, given in graphs:
            result = run(compiler.compile_graph(graph, config, "tflm", VARIANTS[variant], how), given)
            assert (result.matches_reference, result.findings) == (True, ()), variant


def test_tiles_fill_the_buffers_and_no_more() -> None:
    for lanes, rows in product((4, 8, 16, 32), (1 << n for n in range(4, 17))):
        transfer = "counter" if lanes < 16 else "paired"
        tiles = firmware.tiles(Config(array=lanes, transfer=transfer, buffer_rows=rows))
        m, n, k = (tiles[key] for key in ("TILE_M", "TILE_N", "TILE_K"))

        def needed(m: int, n: int, k: int, lanes: int = lanes) -> int:
            return max(-(-m // lanes) * k, -(-n // lanes) * k, -(-n // lanes) * m)

        assert needed(m, n, k) <= rows
        assert max(m, n, k) < 1024
        assert k == 512 or needed(m, n, 2 * k) > rows, (lanes, rows)
    assert firmware.tiles(Config()) == {"TILE_M": 256, "TILE_N": 256, "TILE_K": 256}  # the document's


def test_other_rounding_modes_leave_to_the_host_what_has_no_kernel() -> None:
    program = get("cfu").compile(contract.network(), Config(), "ort")
    assert [step.name for step in program.launches] == ["flat"]
    assert "'float'" in next(step.reason for step in program.steps if not isinstance(step, Launch))


def _run(program: Program, **arrays: np.ndarray) -> None:
    (launch,) = program.launches
    changed = replace(launch, arrays={**launch.arrays, **arrays})
    values = {"x": np.zeros((1, 1, 6, 6, 3), np.int8)}
    get("cfu").launch(replace(program, steps=(changed,)), changed, values, RunOptions(timing="sourced"))


def test_damaged_model_data_are_refused_before_they_run() -> None:
    program = compiled(contract.network(), "baseline")
    blob = program.launches[0].arrays["blob"]
    words = blob.view("<i4")
    at = len(layout.HEADER)
    for index, value in ((0, 0), (1, 99), (2, 4), (3, 10_000), (4, 64), (at, 77), (at + 1, -4), (at + 4, 1 << 20)):
        broken = words.copy()
        broken[index] = value
        with pytest.raises(ProgramError, match="launch '"):
            _run(program, blob=broken.view(np.uint8))


def test_firmware_checks_the_model_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the host's checks, the program ends with a status and says why."""
    program = compiled(contract.network(), "baseline")
    words = program.launches[0].arrays["blob"].view("<i4")
    monkeypatch.setattr(layout, "check", lambda header, records: None)
    at = len(layout.HEADER)
    for index, value, text in (
        (at, 77, "unknown operator"),
        (at + 1, -4, "out of bounds"),
        (at + 4, 1 << 30, "bounds"),
    ):
        broken = words.copy()
        broken[index] = value
        with pytest.raises((MachineError, ValueError), match=f"{text}|not a valid Kind"):
            _run(program, blob=broken.view(np.uint8))


def test_no_compiler_names_the_command_that_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firmware, "compilers", lambda: ())
    with pytest.raises(UnsupportedError, match=r"apt-get install gcc-riscv64-unknown-elf, or .*pip install"):
        get("cfu").compile(contract.network(), Config(), "tflm")


def test_a_build_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    first = compiled(contract.network(), "baseline").launches[0].arrays["elf"]

    def refused(*_: object) -> bytes:
        raise AssertionError("built again")

    monkeypatch.setattr(firmware, "_compile", refused)
    np.testing.assert_array_equal(compiled(contract.network(), "baseline").launches[0].arrays["elf"], first)
    with pytest.raises(AssertionError, match="built again"):
        compiled(contract.network(), "general")


def test_a_machine_that_the_firmware_is_not_for() -> None:
    config = get("cfu").config("im2col", {"transfer": "addressed"})
    with pytest.raises(ConfigError, match="'coupled' needs array"):
        get("cfu").compile(contract.network(), config, "tflm")
    config = get("cfu").config(None, {"buffer_rows": "2048", "firmware": "tiles_128_512"})
    with pytest.raises(ConfigError, match="needs buffer_rows of at least 4096; it is 2048"):
        get("cfu").compile(contract.network(), config, "tflm")
    config = get("cfu").config("counter8", {"firmware": "baseline"})
    assert run(get("cfu").compile(contract.network(), config, "tflm"), contract.inputs()[:1]).matches_reference
    with pytest.raises(ConfigError, match="set extensions=pool,dot"):
        get("cfu").compile(contract.network(), Config(firmware="dense_dot", extensions="pool"), "tflm")
    with pytest.raises(ConfigError, match="no variant 'none'"):
        get("cfu").config(None, {"firmware": "none"})


def test_values_that_live_together_lie_apart() -> None:
    seed = int(np.random.default_rng().integers(1 << 32))
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for _ in range(50):
        first = rng.integers(-1, 20, 30)
        values = [
            Lived(f"v{index}", int(rng.integers(1, 5000)), int(at), int(at + rng.integers(0, 8)))
            for index, at in enumerate(first)
        ]
        offsets, total = arena(values)
        for a in values:
            assert 0 <= offsets[a.name] <= total - a.size
            for b in values:
                if a is not b and a.first <= b.last and b.first <= a.last:
                    apart = offsets[a.name] + a.size <= offsets[b.name], offsets[b.name] + b.size <= offsets[a.name]
                    assert any(apart), (a, b)
