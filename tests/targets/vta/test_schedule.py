"""Schedules of the user's: random ones run exactly, those of programs give these again, wrong ones are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import tilewright as tw
from tests.conftest import ROOT
from tests.mlperf import model_path
from tests.program.comparing import same
from tests.targets.vta import residuals
from tests.targets.vta.cases import Case, layers, machines, networks
from tests.targets.vta.networks import Builder
from tests.targets.vta.promises import check_program
from tests.targets.vta.random_graphs import buffers
from tests.targets.vta.schedules import members, random_schedule
from tilewright import targets
from tilewright.errors import InputError
from tilewright.explore.measure import Remembers
from tilewright.graph.ops import Conv2D, Window
from tilewright.model.inputs import random
from tilewright.program.program import Program
from tilewright.run import timed
from tilewright.targets.vta.compiler import legal, scores
from tilewright.targets.vta.compiler.compiler import TOKENS, compile_graph
from tilewright.targets.vta.compiler.scheduled import compile_scheduled, schedule_of
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.schedule import Halvings, LayerSchedule, Schedule, Slots, Tile, read

DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
PYNQ = PRESETS["pynq"]
FEW = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])


def check_many(cases: st.SearchStrategy[Case], wanted: int, limits: settings, first: int, folder: Path) -> int:
    """Check random schedules of random networks on random machines; return how many layers had one."""
    scheduled = 0

    @seed(first)
    @given(case=cases, machine=machines(), draw=st.integers(0, 1 << 16))
    @limits
    def each(case: Case, machine: Config, draw: int) -> None:
        nonlocal scheduled
        if machine.token_depth < TOKENS or scheduled >= wanted:
            return
        rng = np.random.default_rng(draw)
        given_ = read(random_schedule(rng, case.graph, machine, case.rounding))
        program = compile_scheduled(case.graph, machine, case.rounding, "tilewright", given_, False)
        found = {layer.layer: layer for layer in schedule_of(program).layers}
        for layer in given_.layers:
            assert replace(found[layer.layer], alone=layer.alone, nodes=layer.nodes) == layer
        check_program(program, case, machine, folder)
        assert same(program, recompiled(program, machine))
        scheduled += len(given_.layers)

    each()
    return scheduled


def recompiled(program: Program, machine: Config) -> Program:
    """A program, compiled again from the text of its own schedule."""
    assert program.graph
    known = read(json.loads(schedule_of(program).text()))
    return compile_scheduled(program.graph, machine, program.rounding, "tilewright", known, False)


@pytest.mark.usefixtures("brief_search")
@pytest.mark.parametrize(("cases", "count"), [(layers(), 12), (networks(), 24)], ids=["layers", "networks"])
def test_random_schedules_run_exactly(cases: st.SearchStrategy[Case], count: int, tmp_path: Path) -> None:
    assert check_many(cases, count, settings(FEW, max_examples=2 * count), 0, tmp_path) >= count


@pytest.mark.slow
@pytest.mark.parametrize("cases", [layers(), networks()], ids=["layers", "networks"])
def test_500_random_schedules_run_exactly(cases: st.SearchStrategy[Case], tmp_path: Path) -> None:
    """New ones in every run."""
    first = int(np.random.default_rng().integers(1 << 31))
    print(f"seed {first}")
    assert check_many(cases, 500, settings(FEW, max_examples=4000, print_blob=True), first, tmp_path) >= 500


@pytest.mark.usefixtures("brief_search")
@settings(FEW, max_examples=15)
@given(networks(), machines())
def test_the_schedule_of_a_random_program_gives_it_again(case: Case, machine: Config) -> None:
    if machine.token_depth >= TOKENS:
        program = compile_graph(case.graph, machine, case.rounding)
        assert same(program, recompiled(program, machine))


@pytest.mark.parametrize("keys", [{}, {"alu": "fused"}, {"stages": "4"}, {"alu": "fused", "token_depth": "8"}])
def test_the_schedule_of_the_digits_gives_the_same_program(keys: dict[str, str]) -> None:
    program = tw.compile(DIGITS, "vta", overrides=keys)
    assert same(program, tw.compile(DIGITS, "vta", overrides=keys, schedule=schedule_of(program)))


@pytest.mark.slow
@pytest.mark.parametrize("key", ["kws", "ic", "vww", "ad"])
@pytest.mark.parametrize("alu", ["upstream", "fused"])
def test_the_schedule_of_a_whole_network_gives_the_same_program(shared: Path, key: str, alu: str) -> None:
    program = tw.compile(model_path(shared, key), "vta", overrides={"alu": alu})
    assert same(
        program, tw.compile(model_path(shared, key), "vta", overrides={"alu": alu}, schedule=schedule_of(program))
    )


def test_a_chain_with_residuals_and_pools_is_given_again() -> None:
    case = residuals.case_of(0, channels=32)
    program = compile_graph(case.graph, PYNQ, case.rounding)
    assert any(len(launch.nodes) > 1 for launch in program.launches)
    assert same(program, recompiled(program, PYNQ))


def schedule(path: Path = DIGITS) -> dict[str, Any]:
    """The schedule of a network on the default machine, as JSON values to be changed."""
    found: dict[str, Any] = json.loads(schedule_of(tw.compile(path, "vta")).text())
    return found


def layer(data: dict[str, Any], name: str) -> dict[str, Any]:
    """The entry of one layer."""
    (found,) = (each for each in data["layers"] if each["layer"] == name)
    entry: dict[str, Any] = found
    return entry


def test_a_changed_layer_gets_its_plan_and_the_others_are_searched() -> None:
    tile = {"rows": 2, "columns": 4, "output_tiles": 1, "input_tiles": 1}
    data = {"version": 1, "target": "vta", "layers": [{"layer": "conv2d_3", "tile": tile, "threads": 2}]}
    programs = [tw.compile(DIGITS, "vta", schedule=wanted) for wanted in (None, data)]
    before, after = ({each.layer: each for each in schedule_of(made).layers} for made in programs)
    expected = replace(before["conv2d_3"], tile=Tile(**tile), slots=Slots(2, 2, 2), halvings=Halvings())
    assert after == before | {"conv2d_3": expected}
    assert programs[1].graph
    result = programs[1].run(random(programs[1].graph).values)
    assert result.matches_reference and not result.findings


def test_a_dataclass_is_as_good_as_json() -> None:
    own = LayerSchedule("conv2d_3", Tile(2, 8, 1, 1), slots=Slots(2, 1, 2))
    program = tw.compile(DIGITS, "vta", schedule=Schedule((own,)))
    assert same(program, tw.compile(DIGITS, "vta", schedule=Schedule((own,)).to_json()))
    with pytest.raises(InputError, match=r"layer \"conv2d_3\": tile\.rows: is \"two\", not an integer"):
        tw.compile(DIGITS, "vta", schedule=Schedule((replace(own, tile=Tile("two", 8, 1, 1)),)))  # type: ignore[arg-type]


def test_a_search_that_starts_from_a_schedule_is_not_slower() -> None:
    data = schedule()
    for each in data["layers"]:
        each["tile"] = dict.fromkeys(each["tile"], 1)
        each["slots"] = dict.fromkeys(each["slots"], 1)
        each["halvings"] = {"first": 0, "last": 0}
    graph = tw.load(DIGITS)
    values = random(graph).values
    given_, searched, from_given = (
        tw.compile(graph, "vta", schedule=wanted, search=search).run(values)
        for wanted, search in ((data, False), (None, False), (data, True))
    )
    assert given_.cycles > searched.cycles >= from_given.cycles
    assert from_given.matches_reference and not from_given.findings


Change = Callable[[dict[str, Any]], object]
#: What breaks the schedule of the digits, and what the error says.
WRONG: dict[str, tuple[Change, str]] = {
    "version": (lambda s: s.update(version=2), "version: is 2; give version 1"),
    "no version": (lambda s: s.pop("version"), "lacks 'version'"),
    "target": (lambda s: s.update(target="zynq"), 'target: is "zynq"; give target vta'),
    "key": (lambda s: s.update(layer=[]), 'has "layer", which is unknown.*did you mean layers?'),
    "layers": (lambda s: s.update(layers={}), "layers: is {}, not a list"),
    "entry": (lambda s: s["layers"].append(7), r"layers\[7\]: is 7, not an object"),
    "twice": (lambda s: s["layers"].append(s["layers"][0]), 'layer "conv2d_0" occurs twice'),
    "name": (lambda s: s["layers"][0].update(layer="conv2d_9"), 'has no layer "conv2d_9"; did you mean conv2d_'),
    "host": (lambda s: s["layers"][0].update(layer="softmax_9"), "the host runs it: softmax needs exponentials"),
    "machine": (lambda s: s["config"].update(LOG_BATCH=1), "for a machine with LOG_BATCH 1; this machine has 0"),
    "config": (lambda s: s["config"].update(LOG_BATCH=99), "config: LOG_BATCH"),
    "rounding": (lambda s: s.update(rounding="ort"), 'for rounding "ort", not tflm'),
    "no tile": (lambda s: layer(s, "conv2d_3").pop("tile"), r'layer "conv2d_3": lacks .tile'),
    "typo": (lambda s: layer(s, "conv2d_3").update(tiles={}), 'has "tiles", which is unknown.*did you mean tile?'),
    "inner typo": (
        lambda s: layer(s, "conv2d_3")["tile"].update(row=1),
        'tile: has "row", which is unknown.*did you mean rows?',
    ),
    "type": (lambda s: layer(s, "conv2d_3")["tile"].update(rows="3"), 'tile.rows: is "3", not an integer'),
    "boolean": (lambda s: layer(s, "conv2d_3")["slots"].update(inp=True), "slots.inp: is true, not an integer"),
    "zero": (
        lambda s: layer(s, "conv2d_3")["tile"].update(columns=0),
        "tile.columns: is 0; it must be 1 to",
    ),
    "huge": (lambda s: layer(s, "conv2d_3")["slots"].update(inp=1 << 70), "slots.inp: is 118059.*2,147,483,647"),
    "loop": (
        lambda s: layer(s, "conv2d_3").update(outer_loop="rows"),
        'outer_loop: is "rows"; choose one of space, channels',
    ),
    "form": (lambda s: layer(s, "conv2d_5").update(form="strips"), "form strips is not possible; possible here: plain"),
    "unknown form": (lambda s: layer(s, "conv2d_5").update(form=[]), r"form: is \[\]; choose one of plain"),
    "nodes": (
        lambda s: layer(s, "conv2d_5").update(nodes=["conv2d_5", "x"]),
        "nodes is .*, but this layer computes conv2d_5",
    ),
    "size": (lambda s: layer(s, "conv2d_5")["of"].update(rows=5), "this layer has 4 rows x 4 columns x 2 output_tiles"),
    "rows": (
        lambda s: layer(s, "conv2d_5")["tile"].update(rows=5),
        r"tile.rows 5 is more than the 4 rows of the layer; possible with tile.rows 4",
    ),
    "inputs": (
        lambda s: layer(s, "conv2d_5")["tile"].update(input_tiles=2),
        r"tile.input_tiles 2 is more than the 1 input channel tiles of the layer; possible with tile.input_tiles 1",
    ),
    "inp": (
        lambda s: layer(s, "conv2d_5")["slots"].update(inp=900),
        r"a tile of 4x4 pixels reads 64 tiles of 1 input channel tiles; 900 slots need 57,600 of 2,048 inp tiles; "
        r"possible with slots.inp 32$",
    ),
    "wgt": (
        lambda s: layer(s, "conv2d_5")["slots"].update(wgt=300),
        r"a chunk of 1 x 1 channel tiles has 9 weight tiles; 300 slots need 2,700 of 1,024 wgt tiles; "
        r"possible with slots.wgt 113$",
    ),
    "acc": (
        lambda s: layer(s, "conv2d_5")["slots"].update(acc=200),
        r"a tile of 4x4 pixels x 1 output channel tiles has 16 tiles of sums; 200 slots need 3,200 of 2,048 acc tiles; "
        r"possible with slots.acc 128",
    ),
    "tokens": (lambda s: layer(s, "conv2d_5")["slots"].update(inp=1024), "queue has token_depth 1,024"),
    "stores": (lambda s: layer(s, "conv2d_5")["slots"].update(acc=1025), "each store may push a token.*slots.acc 128"),
    "halvings": (lambda s: layer(s, "conv2d_5")["halvings"].update(last=17), "halvings.last 17 is more than 16"),
    "many": (
        lambda s: s.update(layers=[{"layer": "conv2d_5", "tile": dict.fromkeys(s["layers"][0]["tile"], 1)}]),
        "the tile cuts the layer into 32 chunks, more than 31; make it larger",
    ),
    "small": (
        lambda s: layer(s, "average_pool_2d_6")["halvings"].update(first=1),
        "halvings.first 1: only tiles of more than 2 rows",
    ),
}


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return schedule()


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_schedule_is_refused_with_its_rule(
    case: str, plain: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = json.loads(json.dumps(plain))
    change, said = WRONG[case]
    change(data)
    monkeypatch.setattr(legal, "CHUNKS", 31)
    with pytest.raises(InputError, match=said) as found:
        tw.compile(DIGITS, "vta", schedule=data)
    assert "\n" not in str(found.value) and len(str(found.value)) < 400


JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    3,
    1 << 40,
    10**400,
    1.5,
    float("nan"),
    "",
    "x" * 9999,
    [],
    {},
    [[]],
    {"rows": 1},
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Each entry of a JSON value: its container, and its key or index."""
    pairs = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    return [(value, key) for key, _ in pairs] + [place for _, inner in pairs for place in places(inner)]


def test_random_damage_is_one_clear_error_or_none(plain: dict[str, Any]) -> None:
    first, refused, graph = int(np.random.default_rng().integers(1 << 31)), 0, tw.load(DIGITS)
    print(f"seed {first}")
    rng = np.random.default_rng(first)
    for _ in range(60):
        data = json.loads(json.dumps(plain))
        for _ in range(int(rng.integers(1, 3))):
            where, key = places(data)[rng.integers(len(places(data)))]
            if isinstance(where, dict) and rng.random() < 0.3:
                where["\n" if rng.random() < 0.5 else f"{key}_"] = where.pop(key)
            else:
                where[key] = deepcopy(JUNK[rng.integers(len(JUNK))])  # or a second change would reach JUNK
        try:
            tw.compile(graph, "vta", schedule=data)
        except InputError as error:
            refused += 1
            assert "\n" not in str(error) and len(str(error)) < 1000
    assert refused > 30


@pytest.mark.usefixtures("brief_search")
@pytest.mark.parametrize("memory", ["inp", "wgt", "acc"])
def test_a_plan_that_a_memory_does_not_hold_would_have_hazards(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule of each memory refuses the first number of slots with which a program is wrong."""
    builder = Builder(np.random.default_rng(1))
    builder.linear(
        Conv2D("relu", Window((3, 3), padding=(1, 1, 1, 1))), builder.given((1, 12, 12, 64)), (64, 3, 3, 64), 0
    )
    graph, machine = builder.graph(), buffers(12, 13, 15, 14)
    (member,) = members(graph, machine, "tflm")
    least = replace(member.plan, tile=Tile(2, 12, 1, 1), halvings=Halvings())
    plans = [replace(least, slots=Slots(**{memory: count})) for count in range(1, 99)]
    slots = next(count for count, plan in enumerate(plans) if legal.violation(plan, machine))
    for count in (slots - 1, slots):
        plan = plans[count]
        if count == slots:
            monkeypatch.setattr(legal, "violation", lambda plan, config: None)
        given_ = Schedule((legal.layer_schedule(plan, "plain", ("n0",), False),))
        found = targets.get("vta").check(compile_scheduled(graph, machine, "tflm", "tilewright", given_, False))
        assert bool(list(found)) == (count == slots)


def test_given_and_searched_programs_are_kept_apart(tmp_path: Path) -> None:
    data: dict[str, Any] = Schedule((LayerSchedule("conv2d_3", Tile(1, 8, 1, 1)),)).to_json()

    def cycles(wanted: object, search: bool = False) -> int:
        program = tw.compile(DIGITS, "vta", cache=tmp_path, schedule=wanted, search=search)
        return sum(found.trace.cycles for _, found in timed(program, "tilewright") if found.trace)

    for _ in "twice":
        searched, given_, started = cycles(None), cycles(data), cycles(data, True)
        assert started <= searched < given_
    assert len(list(tmp_path.glob("*.twp"))) == 3


def test_what_searches_remember_is_kept_apart(tmp_path: Path) -> None:
    vta = targets.get("vta")
    data = schedule()
    for each in data["layers"]:
        each["slots"] = {"inp": 1, "wgt": 1, "acc": 1}
    assert isinstance(vta, Remembers)
    with vta.remembering(tmp_path):
        programs = [tw.compile(DIGITS, "vta", schedule=wanted) for wanted in (data, None, data)]
    assert same(programs[0], programs[2]) and same(programs[1], tw.compile(DIGITS, "vta"))
    assert not same(programs[0], programs[1])
    scores._REMEMBERED.clear()


@pytest.mark.parametrize("target", ["cfu", "zynq", "bm1684x"])
def test_other_targets_take_no_schedule(target: str) -> None:
    with pytest.raises(InputError, match=f"schedule: {target} takes no schedules"):
        tw.compile(DIGITS, target, schedule={})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot be read as JSON"),
        ("[]", "is not a JSON object"),
        ("[" * 100_000, "cannot be read as JSON"),
        ('{"version": 1, "version": 1}', 'key "version" occurs twice'),
        ("{}", "lacks 'layers'"),
        ('{"version": 1' + "0" * 5000 + "}", "cannot be read as JSON"),
        ("\xff", "cannot be read as JSON"),
    ],
)
def test_a_damaged_file_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=said) as found:
        read(path)
    assert str(found.value).startswith(str(path))


@pytest.mark.parametrize("source", ["missing.json", "/", "/dev/zero", 7, None, Schedule((7,))])  # type: ignore[arg-type]
def test_what_is_no_schedule_is_refused(source: object) -> None:
    with pytest.raises(InputError):
        read(source)
