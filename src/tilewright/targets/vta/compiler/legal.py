"""The rules that a plan must keep on a machine, each with its message; plans from a user's schedule, and back.

The search keeps the same rules by formulas (search._choices). Here each rule is checked on one plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

from tilewright.errors import InputError, shown
from tilewright.targets.vta.compiler.layer import LARGEST_SIZE, Layer, spans
from tilewright.targets.vta.compiler.lowered import Lowered
from tilewright.targets.vta.compiler.plan import Plan, accumulator_tiles, parameter_room
from tilewright.targets.vta.compiler.search import ranked
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.schedule import Halvings, LayerSchedule, Slots, Tile
from tilewright.targets.vta.timing import DEFAULT

#: Most chunks of a layer (more only if the search's plans have as many): they take half a minute and 1 GB to compile.
CHUNKS = 1 << 15
#: Most halvings of a group: then each of its pieces has one row.
HALVINGS = 16
#: The name in a schedule of each field of `Plan`.
FIELDS = {
    "rows": "tile.rows",
    "columns": "tile.columns",
    "outs": "tile.output_tiles",
    "sums": "tile.input_tiles",
    "inp": "slots.inp",
    "wgt": "slots.wgt",
    "acc": "slots.acc",
    "head": "halvings.first",
    "tail": "halvings.last",
}


class Broken(NamedTuple):
    """A rule that a plan breaks, and the fields of the plan that may be made smaller to keep it."""

    reason: str
    fields: tuple[str, ...] = ()


def whole(layer: Layer) -> Tile:
    """Return the size of a layer as that of its largest tile."""
    return Tile(*layer.out, layer.out_tiles, layer.depth)


def noted(plan: Plan, form: str, nodes: tuple[str, ...], alone: bool) -> LayerSchedule:
    """Return the schedule of the layer that computes `nodes`; `plan_of` returns its plan again."""
    cut = plan.cut
    tile = Tile(*cut[:4])
    slots = Slots(*cut[5:8])
    halvings = Halvings(*cut[8:])
    return LayerSchedule(nodes[0], tile, plan.outside, slots, halvings, form, nodes, whole(plan.layer), alone)


def plan_of(
    given: LayerSchedule, nodes: tuple[str, ...], forms: Sequence[Lowered], config: Config, where: str
) -> tuple[Lowered, Plan]:
    """Return the form and the plan that a schedule gives the layer of `nodes`, which has the forms `forms`.

    Raises InputError, which begins with `where`, if the network has another layer, or if the plan breaks a rule.
    """
    where = f"{where}, layer {shown(given.layer)}"
    if given.nodes and given.nodes != nodes:
        reason = f"nodes is {shown(given.nodes)}, but this layer computes {', '.join(nodes)}"
        raise InputError(where, reason, "nodes is only compared: leave it out, or take that of `explain`")
    known = {form.form: form for form in forms}
    if given.form not in known:
        raise InputError(where, f"form {given.form} is not possible", f"possible here: {', '.join(known)}")
    form = known[given.form]
    if given.of is not None and given.of != whole(form.layer):
        sizes = " x ".join(f"{size} {name}" for name, size in vars(whole(form.layer)).items())
        reason = f"of is another size: this layer has {sizes}"
        raise InputError(where, reason, "the schedule is of another network; `explain` writes that of this one")
    tile, slots, halvings = (vars(part).values() for part in (given.tile, given.slots, given.halvings))
    cut: tuple[Any, ...] = (*tile, given.outer_loop, *slots, *halvings)
    plan = Plan(form.layer, *cut)
    if rule := broken(plan, config):
        near = [f"{FIELDS[name]} {value}" for name, value in _smaller(plan, config, rule.fields)]
        remedy = f"possible with {' or '.join(near)}" if near else "make the tile smaller" if rule.fields else ""
        raise InputError(where, rule.reason, remedy)
    return form, plan


def broken(plan: Plan, config: Config) -> Broken | None:
    """Return the first rule that a plan breaks on a machine; None if it can be compiled."""
    return next(_broken(plan, config), None)


def chunks(plan: Plan) -> int:
    """Return the number of chunks into which a plan cuts a layer, at most."""
    cut = plan.rows, plan.columns, plan.outs, plan.sums
    return prod(-(-size // part) for size, part in zip(vars(whole(plan.layer)).values(), cut, strict=True))


def _broken(plan: Plan, config: Config) -> Iterator[Broken]:
    """Yield the rules that a plan breaks; the rules on memories hold for tiles that are parts of their layer."""
    most = whole(plan.layer)
    names = {"rows": "rows", "columns": "columns", "outs": "output channel tiles", "sums": "input channel tiles"}
    for (name, what), limit in zip(names.items(), vars(most).values(), strict=True):
        if (value := getattr(plan, name)) > limit:
            yield Broken(f"{FIELDS[name]} {value:,} is more than the {limit:,} {what} of the layer", (name,))
    if plan.layer.link == "banded" and plan.outs > 1:
        reason = "each output channel tile reads input tiles of its own, so a group has one"
        yield Broken(f"tile.output_tiles {plan.outs}: {reason}", ("outs",))
    if (count := chunks(plan)) > CHUNKS:
        searched = max((chunks(known) for known in ranked(plan.layer, config, DEFAULT)), default=0)
        if count > max(CHUNKS, searched):
            yield Broken(f"the tile cuts the layer into {count:,} chunks, more than {CHUNKS:,}; make it larger")
    tokens = max(2, config.token_depth)
    if plan.inp + plan.wgt > tokens:
        reason = f"each load may push a token, and the queue has token_depth {config.token_depth:,}"
        yield Broken(f"slots.inp {plan.inp:,} and slots.wgt {plan.wgt:,}: {reason}", ("inp", "wgt"))
    if plan.acc > config.token_depth:
        reason = f"each store may push a token, and the queue has token_depth {config.token_depth:,}"
        yield Broken(f"slots.acc {plan.acc:,}: {reason}", ("acc",))
    if config.stages > 3 and config.acc_banks % plan.acc:
        yield Broken(
            f"slots.acc {plan.acc}: the {config.acc_banks} banks of acc cannot be shared out equally", ("acc",)
        )
    for name in ("head", "tail"):
        value = getattr(plan, name)
        if value > HALVINGS:
            yield Broken(f"{FIELDS[name]} {value:,} is more than {HALVINGS}", (name,))
        if value and not plan.tapers:
            reason = "only tiles of more than 2 rows (in matrix products: columns), without a pool, are halved"
            yield Broken(f"{FIELDS[name]} {value}: {reason}", (name,))
    yield from _memories(plan, config)


def _memories(plan: Plan, config: Config) -> Iterator[Broken]:
    """Yield the rules on the sizes of memories that a plan breaks."""
    layer = plan.layer
    needs = plan.needs()
    space = ("rows", "columns")
    diagonal = layer.link == "diagonal"
    added = int(layer.residual is not None)
    tile = f"a tile of {plan.rows}x{plan.columns} pixels"
    deep, field = (plan.outs, "outs") if diagonal else (plan.sums, "sums")
    row = max(max(span.size, span.extent) for span in spans(layer, 1, plan.columns))
    if row > LARGEST_SIZE:
        yield Broken(f"{tile} has rows of {row:,} tiles; a transfer has at most {LARGEST_SIZE:,}", space)
    what = f"{tile} reads {needs.inp:,} tiles of {deep} input channel tiles"
    yield from _over("inp", what, plan.inp, needs.inp, needs.residual, config.inp.depth, (field, *space))
    what = f"a chunk of {plan.outs} x {1 if diagonal else plan.sums} channel tiles has {needs.wgt:,} weight tiles"
    if needs.wgt > LARGEST_SIZE:
        yield Broken(f"{what}; a transfer has at most {LARGEST_SIZE:,}", ("sums", "outs"))
    yield from _over("wgt", what, plan.wgt, needs.wgt, added, config.wgt.depth, ("sums", "outs"))
    room = parameter_room(config)
    par = needs.par if room.in_slots else 0
    with_par = f" and {par:,} tiles of parameters" if par else ""
    what = f"{tile} x {plan.outs} output channel tiles has {needs.acc:,} tiles of sums{with_par}"
    most = accumulator_tiles(config, layer)
    yield from _over("acc", what, plan.acc, needs.acc + par, 0, most, ("outs", *space))
    if needs.par > room.tiles:
        of = f"the {room.tiles:,} tiles of {room.memory.name.lower()} that hold parameters"
        yield Broken(
            f"{plan.outs} output channel tiles have {needs.par:,} tiles of parameters, more than {of}", ("outs",)
        )


def _over(
    memory: str, what: str, slots: int, each: int, more: int, depth: int, fields: tuple[str, ...]
) -> Iterator[Broken]:
    """Yield the rule that `slots` slots of `each` tiles, and `more` for a residual, fit a memory of `depth` tiles."""
    total = slots * each + more
    if total > depth:
        counted = f"{slots:,} {'slot needs' if slots == 1 else 'slots need'}"
        rest = f", with {more:,} for a residual," if more else ""
        yield Broken(f"{what}; {counted} {total:,} of {depth:,} {memory} tiles{rest}".rstrip(","), (memory, *fields))


def _smaller(plan: Plan, config: Config, names: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Yield fields of a plan, each with a smaller value for which it keeps all rules: the largest one, as a rule."""
    for name in names:
        fits = None
        low = 0 if name in ("head", "tail") else 1
        high = getattr(plan, name) - 1
        while low <= high:
            middle = (low + high + 1) // 2 if fits is not None else low
            smaller: dict[str, Any] = {name: middle}
            if broken(replace(plan, **smaller), config) is None:
                fits = middle
                low = middle + 1
            elif fits is None:
                break
            else:
                high = middle - 1
        if fits is not None:
            yield name, fits
