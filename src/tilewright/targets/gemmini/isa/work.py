"""Primitive commands with the settings that apply to them.

Config commands take effect in program order, separately in each queue. For each command, `work` finds the config that
applies to the command. For each compute, `work` finds the preceding preload. The passes for values, hazards and counts
use this result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array, among
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa import fields
from tilewright.targets.gemmini.isa.fields import CODES

#: The kinds of primitive commands. SET: a config command, a flush, a fence or a counter access.
SET, MVIN, MVOUT, PRELOAD, COMPUTE = range(5)
#: The queues of the reservation station.
LD, EX, ST = range(3)
#: Bit positions in a local address: the flags, and the lowest bit of the norm command.
ACC = 31
ACCUMULATE = 30
FULL = 29
NORM = 26
#: The index of an absent config, preload or snapshot.
NONE = -1
#: The bits of the scale 1.0 as float32.
SCALE_ONE = 0x3F80_0000
#: A scale with all bits 1 in config_st keeps the previous scale.
KEEP = 0xFFFF_FFFF
#: The smallest number of rows that the array streams [R: gemmini_timing rule 15].
LEAST_ROWS = 4


class Local(NamedTuple):
    """Local operands, int64 [n] each. `row` is a row of the accumulator if `acc`, else of the scratchpad."""

    row: Array
    cols: Array
    rows: Array
    acc: Array
    accumulate: Array
    full: Array
    norm: Array
    garbage: Array


def local(address: Array, cols: Array, rows: Array, config: Config) -> Local:
    """Split local addresses (int64 [n]) into their parts."""
    # An address is garbage (an absent operand or result) if its flags, its row bits and the next higher bit are all 1.
    flag = {bit: address >> bit & 1 for bit in (ACC, ACCUMULATE, FULL)}
    row = address & (1 << NORM) - 1
    ones = 7 << FULL | (2 << config.row_bits) - 1
    garbage = (address & ones == ones).astype(np.int64)
    return Local(row, cols, rows, flag[ACC], flag[ACCUMULATE], flag[FULL], address >> NORM & 7, garbage)


class Moves(NamedTuple):
    """The mvins of a program, or with `out` the mvouts, int64 [k] each.

    `step`: the index of the primitive command. `state`: the index of the config command that applies, or NONE.
    `settings`: the fields of this config command, or zeros.
    """

    out: bool
    step: Array
    state: Array
    dram: Array
    local: Local
    settings: dict[str, Array]


class Computes(NamedTuple):
    """The computes of a program, int64 [k] each.

    `preload`: the index of the preceding preload, or NONE. `config`: the index of the config_ex that applies. `w` and
    `c` are operands of the preload; `a` and `d` are operands of the compute. `fresh`: the compute first loads `w` into
    the array. `streamed`: the number of rows that pass through the array. The RTL does not write further rows of the
    result.
    """

    step: Array
    preload: Array
    config: Array
    fresh: Array
    a: Local
    d: Local
    w: Local
    c: Local
    settings: dict[str, Array]
    streamed: Array


class Work(NamedTuple):
    """A program of n primitive commands: their kinds and codes, int64 [n] each, and the moves and computes."""

    kind: Array
    code: Array
    loads: Moves
    stores: Moves
    computes: Computes
    preloads: Array  # int64 [p]: the steps of the preloads
    config_st: tuple[Array, dict[str, Array]]  # the steps and fields of config_st; `scale` is the scale afterwards
    config_norm: tuple[Array, dict[str, Array]]  # the steps and the fields of config_norm

    @property
    def moves(self) -> tuple[Moves, Moves]:
        return self.loads, self.stores


_KIND = {"mvin": MVIN, "mvin2": MVIN, "mvin3": MVIN, "mvout": MVOUT, "preload": PRELOAD}
_KINDS = np.array(
    [_KIND.get(form.name, COMPUTE if form.name.startswith("compute") else SET) for form in fields.FORMATS], np.int64
)
_QUEUE = {"config_ld": LD, "mvin": LD, "mvin2": LD, "mvin3": LD, "config_st": ST, "config_norm": ST, "mvout": ST}
#: The queue of each code.
QUEUES = np.array([_QUEUE.get(name, EX) for name in CODES], np.int64)
#: The load state that each mvin uses, by code.
STATE = {CODES["mvin"]: 0, CODES["mvin2"]: 1, CODES["mvin3"]: 2}


def work(prims: Array, config: Config) -> Work:
    """Return primitive commands with their settings. `prims`: uint64 [n, 3], in a legal order of execution.

    Raises ProgramError for an unknown funct.
    """
    code = fields.codes(prims)
    kind = _KINDS[code]
    norm = np.flatnonzero(code == CODES["config_norm"])
    sets = _config_st(prims, code)
    return Work(
        kind,
        code,
        _loads(prims, code, config),
        _stores(prims, code, sets, config),
        _computes(prims, code, config),
        np.flatnonzero(kind == PRELOAD),
        sets,
        (norm, fields.fields(prims[norm], CODES["config_norm"])),
    )


def before(steps: Array, marks: Array) -> Array:
    """For each step, return the index of the last mark before the step, or NONE. Both arrays ascend."""
    return np.searchsorted(marks, steps) - 1


def _rows_at(columns: dict[str, Array], index: Array) -> dict[str, Array]:
    if not len(next(iter(columns.values()))):
        return {name: np.zeros(len(index), np.int64) for name in columns}
    return {name: np.where(index == NONE, 0, column[index]) for name, column in columns.items()}


def _loads(prims: Array, code: Array, config: Config) -> Moves:
    step = np.flatnonzero(among(code, STATE))
    values = fields.fields(prims[step], CODES["mvin"])
    configs = np.flatnonzero(code == CODES["config_ld"])
    set_by = fields.fields(prims[configs], CODES["config_ld"])
    uses = np.zeros(len(step), np.int64)
    index = np.full(len(step), NONE)
    for mnemonic, state in STATE.items():
        uses[code[step] == mnemonic] = state
    for state in STATE.values():
        mine = uses == state
        marks = np.flatnonzero(set_by["state"] == state)
        last = before(step[mine], configs[marks])
        index[mine] = _step_of(marks, last)
    place = local(values["local"], values["cols"], values["rows"], config)
    return Moves(False, step, _step_of(configs, index), values["dram"], place, _rows_at(set_by, index))


def _config_st(prims: Array, code: Array) -> tuple[Array, dict[str, Array]]:
    steps = np.flatnonzero(code == CODES["config_st"])
    values = fields.fields(prims[steps], CODES["config_st"])
    sets = np.flatnonzero(values["scale"] != KEEP)
    holder = before(np.arange(len(steps)) + 1, sets)
    if len(sets):
        values["scale"] = np.where(holder == NONE, KEEP, values["scale"][sets[holder]])
    return steps, values


def _stores(prims: Array, code: Array, sets: tuple[Array, dict[str, Array]], config: Config) -> Moves:
    step = np.flatnonzero(code == CODES["mvout"])
    configs, set_by = sets
    values = fields.fields(prims[step], CODES["mvout"])
    index = before(step, configs)
    place = local(values["local"], values["cols"], values["rows"], config)
    return Moves(True, step, _step_of(configs, index), values["dram"], place, _rows_at(set_by, index))


def _step_of(steps: Array, index: Array) -> Array:
    return np.where(index == NONE, NONE, steps[index] if len(steps) else NONE)


def _operand(values: dict[str, Array], name: str, config: Config) -> Local:
    return local(values[name], values[f"{name}_cols"], values[f"{name}_rows"], config)


def _computes(prims: Array, code: Array, config: Config) -> Computes:
    fresh = code == CODES["compute_preloaded"]
    step = np.flatnonzero(fresh | (code == CODES["compute_accumulated"]))
    values = fields.fields(prims[step], CODES["compute_preloaded"])
    preloads = np.flatnonzero(code == CODES["preload"])
    operands = fields.fields(prims[preloads], CODES["preload"])
    index = before(step, preloads)
    configs = np.flatnonzero(code == CODES["config_ex"])
    state = before(step, configs)
    preloaded = _rows_at(operands, index)
    computes = Computes(
        step,
        _step_of(preloads, index),
        _step_of(configs, state),
        fresh[step].astype(np.int64),
        _operand(values, "a", config),
        _operand(values, "bd", config),
        _operand(preloaded, "bd", config),
        _operand(preloaded, "c", config),
        _rows_at(_executing(prims, configs), state),
        np.zeros(0, np.int64),
    )
    return computes._replace(streamed=_streamed(computes, config.dim))


def _executing(prims: Array, configs: Array) -> dict[str, Array]:
    """Return the settings after each config_ex. With `only_strides`, a config_ex keeps all other previous settings."""
    values = fields.fields(prims[configs], CODES["config_ex"])
    whole = np.flatnonzero(values["only_strides"] == 0)
    last = before(np.arange(len(configs)) + 1, whole)
    kept = _rows_at(values, _step_of(whole, last))
    return {**kept, "a_stride": values["a_stride"], "c_stride": values["c_stride"]}


def _streamed(computes: Computes, dim: int) -> Array:
    """Return the number of rows that the array streams for each compute."""
    # All rows of the array stream if the array takes the weights of the next preload meanwhile, or if A is transposed.
    a = computes.a
    d = computes.d
    streamed = np.maximum(np.where(a.garbage, 0, a.rows), np.where(d.garbage, 0, d.rows))
    streamed = np.clip(streamed, LEAST_ROWS, dim)
    brings = (computes.w.garbage == 0) & (computes.fresh == 1)
    follows = np.append(brings[1:] & (computes.config[1:] == computes.config[:-1]), False)[: len(streamed)]
    every = follows | (computes.settings["dataflow"] == 0) | (computes.settings["transpose_a"] == 1)
    return np.where(every, dim, streamed)
