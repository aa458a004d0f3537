"""The rules that a plan must keep on a machine, with their messages, and the conversion of plans from and to schedules.

The search states the same rules as formulas over all candidates (search._choices). This module checks one plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from operator import attrgetter
from typing import Any, NamedTuple

from tilewright.errors import InputError, shown
from tilewright.targets.vta.compiler.layer import LARGEST_SIZE, Layer, spans
from tilewright.targets.vta.compiler.lowered import Lowered
from tilewright.targets.vta.compiler.plan import Plan, accumulator_tiles, parameter_room
from tilewright.targets.vta.compiler.search import ranked_plans
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.schedule import LayerSchedule, Tile
from tilewright.targets.vta.timing import DEFAULT

#: Maximum chunks of a layer in a user's plan, unless the search's own plans have more. Such a layer takes half a minute
#: and 1 GB to compile.
CHUNKS = 1 << 15
#: Maximum halvings of a group. After this number of halvings, each piece has one row.
HALVINGS = 16
#: The unit of each field of `Tile`, in order.
SIZES = ("rows", "columns", "output channel tiles", "input channel tiles")


class Violation(NamedTuple):
    """A rule that a plan breaks, and the fields of the plan (such as "tile.rows") that are too large for the rule."""

    reason: str
    fields: tuple[str, ...] = ()


def whole(layer: Layer) -> Tile:
    return Tile(*layer.out, layer.out_tiles, layer.depth)


def layer_schedule(plan: Plan, form: str, nodes: tuple[str, ...], alone: bool) -> LayerSchedule:
    """Return the schedule of the layer that computes `nodes`. `plan_of` converts the schedule back to the plan."""
    choices = plan.tile, plan.outer_loop, plan.slots, plan.halvings
    return LayerSchedule(nodes[0], *choices, form, nodes, whole(plan.layer), alone)


def plan_of(
    given: LayerSchedule, nodes: tuple[str, ...], forms: Sequence[Lowered], config: Config, where: str
) -> tuple[Lowered, Plan]:
    """Return the form and plan of a schedule for the layer of `nodes`. `forms`: the possible forms of this layer.

    Raises InputError, which begins with `where`, if the network has another layer, or if the plan breaks a rule.
    """
    where = f"{where}, layer {shown(given.layer)}"
    if given.nodes and given.nodes != nodes:
        reason = f"nodes is {shown(given.nodes)}, but this layer computes {', '.join(nodes)}"
        raise InputError(where, reason, "remove `nodes`, or copy the list that `explain` writes")
    # `nodes` and `of` only guard against a schedule of another network; the plan does not use them.
    by_name = {form.form: form for form in forms}
    if given.form not in by_name:
        raise InputError(where, f"form {given.form} is not possible", f"possible here: {', '.join(by_name)}")
    form = by_name[given.form]
    if given.of is not None and given.of != whole(form.layer):
        sizes = " x ".join(f"{size} {name}" for name, size in vars(whole(form.layer)).items())
        reason = f"of is another size: this layer has {sizes}"
        raise InputError(where, reason, "the schedule is for another network; `explain` writes one for this network")
    plan = Plan(form.layer, given.tile, given.outer_loop, given.slots, given.halvings)
    if rule := violation(plan, config):
        near = [f"{name} {value}" for name, value in _smaller(plan, config, rule.fields)]
        remedy = f"possible with {' or '.join(near)}" if near else "make the tile smaller" if rule.fields else ""
        raise InputError(where, rule.reason, remedy)
    return form, plan


def violation(plan: Plan, config: Config) -> Violation | None:
    """Return the first rule that a plan breaks on a machine; None for a legal plan."""
    return next(_violations(plan, config), None)


def chunk_count(plan: Plan) -> int:
    """Return an upper bound of the number of chunks into which a plan cuts a layer."""
    sizes = vars(whole(plan.layer)).values(), vars(plan.tile).values()
    return prod(-(-size // part) for size, part in zip(*sizes, strict=True))


def _violations(plan: Plan, config: Config) -> Iterator[Violation]:
    """Yield the rules that a plan breaks. The rules on memories only apply if the tile fits inside the layer."""
    tile = plan.tile
    slots = plan.slots
    for (name, limit), what in zip(vars(whole(plan.layer)).items(), SIZES, strict=True):
        if (value := getattr(tile, name)) > limit:
            yield Violation(f"tile.{name} {value:,} is more than the {limit:,} {what} of the layer", (f"tile.{name}",))
    if plan.layer.link == "banded" and tile.output_tiles > 1:
        reason = "each output channel tile reads input tiles of its own, so a group has one"
        yield Violation(f"tile.output_tiles {tile.output_tiles}: {reason}", ("tile.output_tiles",))
    # The search's own plans are always legal, even if they have more chunks than a user's plan may have.
    if (count := chunk_count(plan)) > CHUNKS:
        searched = max(
            (chunk_count(ranked_plan) for ranked_plan in ranked_plans(plan.layer, config, DEFAULT)), default=0
        )
        if count > max(CHUNKS, searched):
            yield Violation(f"the tile cuts the layer into {count:,} chunks, more than {CHUNKS:,}; make it larger")
    tokens = max(2, config.token_depth)
    if slots.inp + slots.wgt > tokens:
        reason = f"each load may push a token, and the queue has token_depth {config.token_depth:,}"
        yield Violation(f"slots.inp {slots.inp:,} and slots.wgt {slots.wgt:,}: {reason}", ("slots.inp", "slots.wgt"))
    if slots.acc > config.token_depth:
        reason = f"each store may push a token, and the queue has token_depth {config.token_depth:,}"
        yield Violation(f"slots.acc {slots.acc:,}: {reason}", ("slots.acc",))
    if config.stages > 3 and config.acc_banks % slots.acc:
        reason = f"the {config.acc_banks} banks of acc cannot be shared out equally"
        yield Violation(f"slots.acc {slots.acc}: {reason}", ("slots.acc",))
    for key, value in vars(plan.halvings).items():
        name = f"halvings.{key}"
        if value > HALVINGS:
            yield Violation(f"{name} {value:,} is more than {HALVINGS}", (name,))
        if value and not plan.tapers:
            reason = "only tiles of more than 2 rows (in matrix products: columns), without a pool, are halved"
            yield Violation(f"{name} {value}: {reason}", (name,))
    yield from _memories(plan, config)


def _memories(plan: Plan, config: Config) -> Iterator[Violation]:
    layer = plan.layer
    slot_sizes = plan.slot_sizes()
    slots = plan.slots
    outs = plan.tile.output_tiles
    sums = plan.tile.input_tiles
    space = ("tile.rows", "tile.columns")
    channels = ("tile.input_tiles", "tile.output_tiles")
    diagonal = layer.link == "diagonal"
    tile = f"a tile of {plan.tile.rows}x{plan.tile.columns} pixels"
    deep = outs if diagonal else sums
    # Loads and stores have x_size and x_stride fields of 16 bits.
    row = max(max(span.size, span.extent) for span in spans(layer, 1, plan.tile.columns))
    if row > LARGEST_SIZE:
        yield Violation(f"{tile} has rows of {row:,} tiles; a transfer has at most {LARGEST_SIZE:,}", space)
    what = f"{tile} reads {slot_sizes.inp:,} tiles of {deep} input channel tiles"
    fields = (channels[diagonal], *space)
    yield from _over("inp", what, slots.inp, slot_sizes.inp, slot_sizes.more_inp, config.inp.depth, fields)
    what = f"a chunk of {outs} x {1 if diagonal else sums} channel tiles has {slot_sizes.wgt:,} weight tiles"
    if slot_sizes.wgt > LARGEST_SIZE:
        yield Violation(f"{what}; a transfer has at most {LARGEST_SIZE:,}", channels)
    yield from _over("wgt", what, slots.wgt, slot_sizes.wgt, layer.more_weights, config.wgt.depth, channels)
    room = parameter_room(config)
    par = slot_sizes.par if room.in_slots else 0
    with_par = f" and {par:,} tiles of parameters" if par else ""
    what = f"{tile} x {outs} output channel tiles has {slot_sizes.acc:,} tiles of sums{with_par}"
    most = accumulator_tiles(config, layer)
    yield from _over("acc", what, slots.acc, slot_sizes.acc + par, 0, most, (channels[1], *space))
    if slot_sizes.par > room.tiles:
        of = f"the {room.tiles:,} tiles of {room.memory.name.lower()} that hold parameters"
        reason = f"{outs} output channel tiles have {slot_sizes.par:,} tiles of parameters, more than {of}"
        yield Violation(reason, ("tile.output_tiles",))


def _over(
    memory: str, what: str, slots: int, size: int, more: int, depth: int, fields: tuple[str, ...]
) -> Iterator[Violation]:
    """Yield a violation if `slots` slots of `size` tiles, plus `more` other tiles, do not fit a memory."""
    total = slots * size + more
    if total > depth:
        counted = f"{slots:,} {'slot needs' if slots == 1 else 'slots need'}"
        rest = f", with {more:,} for a residual or for offsets," if more else ""
        yield Violation(
            f"{what}; {counted} {total:,} of {depth:,} {memory} tiles{rest}".rstrip(","), (f"slots.{memory}", *fields)
        )


def _smaller(plan: Plan, config: Config, names: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Yield fields of a plan, each with a smaller value that makes the plan legal, usually the largest such value."""
    for name in names:
        fits = None
        part, key = name.split(".")
        low = 0 if part == "halvings" else 1
        high = attrgetter(name)(plan) - 1
        # Bisection: if a value keeps the rules, smaller values usually do too. The smallest value is tried first.
        while low <= high:
            middle = (low + high + 1) // 2 if fits is not None else low
            smaller: dict[str, Any] = {part: replace(getattr(plan, part), **{key: middle})}
            if violation(replace(plan, **smaller), config) is None:
                fits = middle
                low = middle + 1
            elif fits is None:
                break
            else:
                high = middle - 1
        if fits is not None:
            yield name, fits
