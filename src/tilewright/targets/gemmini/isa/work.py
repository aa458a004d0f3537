"""Primitive commands with the settings that apply to them.

Config commands take effect in program order, separately in each queue. `work` finds the config that applies to each
command, and the preload before each compute. The passes for values, hazards and counts need both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array, among
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa import fields
from tilewright.targets.gemmini.isa.fields import CODES

#: The kinds of primitive commands. SET stands for a config command, a flush, a fence or a counter access.
SET, MVIN, MVOUT, PRELOAD, COMPUTE = range(5)
#: The queues of the reservation station.
LD, EX, ST = range(3)
#: Positions of the flags in a local address, and of the lowest bit of the norm command.
ACC = 31
ACCUMULATE = 30
FULL = 29
NORM = 26
#: The index of an absent config, preload or snapshot.
NONE = -1
#: The float32 bits of the scale 1.0.
SCALE_ONE = 0x3F80_0000
#: In config_st, a scale with all bits 1 keeps the previous scale.
KEEP = 0xFFFF_FFFF
#: The smallest number of rows that the array streams [R: gemmini_timing rule 15].
LEAST_ROWS = 4


class Local(NamedTuple):
    """Local operands, int64 [n] each. With `acc`, `row` is a row of the accumulator, else of the scratchpad."""

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
    # The garbage address stands for an absent operand: all its flags, its row bits and the next higher bit are 1.
    flag = {bit: address >> bit & 1 for bit in (ACC, ACCUMULATE, FULL)}
    row = address & (1 << NORM) - 1
    ones = 7 << FULL | (2 << config.row_bits) - 1
    garbage = (address & ones == ones).astype(np.int64)
    return Local(row, cols, rows, flag[ACC], flag[ACCUMULATE], flag[FULL], address >> NORM & 7, garbage)


class Moves(NamedTuple):
    """The mvins of a program (with `out`: the mvouts), int64 [k] each.

    `step` is the index of the primitive command, and `state` is the index of the config command that applies, or NONE.
    `settings` are the fields of this config command, or zeros.
    """

    out: bool
    step: Array
    state: Array
    dram: Array
    local: Local
    settings: dict[str, Array]


class Computes(NamedTuple):
    """The k compute commands of a program, int64 [k] each.

    `preload` and `config` are the indices of the preload and of the config_ex that apply, or NONE. The preload has the
    operands `w` and `c`, and the compute has `a` and `d`. A compute that is `fresh` first loads `w` into the array.
    `streamed` is the number of rows that pass through the array; the RTL writes only this number of result rows.
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
    """A program of n primitive commands: the kind and code of each command, int64 [n], the moves, and the computes."""

    kind: Array
    code: Array
    loads: Moves
    stores: Moves
    computes: Computes
    preloads: Array  # int64 [p]: the indices of the preloads
    config_st: tuple[Array, dict[str, Array]]  # the indices and fields of config_st; `scale` is the scale in effect
    config_norm: tuple[Array, dict[str, Array]]  # the indices and fields of config_norm

    @property
    def moves(self) -> tuple[Moves, Moves]:
        return self.loads, self.stores


_KIND = {"mvin": MVIN, "mvin2": MVIN, "mvin3": MVIN, "mvout": MVOUT, "preload": PRELOAD}
_KINDS = np.array(
    [_KIND.get(form.name, COMPUTE if form.name.startswith("compute") else SET) for form in fields.FORMATS], np.int64
)
_QUEUE = {"config_ld": LD, "mvin": LD, "mvin2": LD, "mvin3": LD, "config_st": ST, "config_norm": ST, "mvout": ST}
#: The queue of each command code.
QUEUES = np.array([_QUEUE.get(name, EX) for name in CODES], np.int64)
#: The load state of each mvin, by command code.
STATE = {CODES["mvin"]: 0, CODES["mvin2"]: 1, CODES["mvin3"]: 2}


def work(prims: Array, config: Config) -> Work:
    """Return the settings of `prims`, uint64 [n, 3], in a legal order. Raises ProgramError for an unknown funct."""
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
    """Return the index of the last mark before each step, or NONE. Both arrays are sorted."""
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
    """Return the settings after each config_ex. A config_ex with `only_strides` changes only the strides."""
    values = fields.fields(prims[configs], CODES["config_ex"])
    whole = np.flatnonzero(values["only_strides"] == 0)
    last = before(np.arange(len(configs)) + 1, whole)
    kept = _rows_at(values, _step_of(whole, last))
    return {**kept, "a_stride": values["a_stride"], "c_stride": values["c_stride"]}


def _streamed(computes: Computes, dim: int) -> Array:
    """Return the number of rows that each compute streams through the array."""
    # A compute streams `dim` rows if the array loads the next weights at the same time, or if A passes the transposer.
    a = computes.a
    d = computes.d
    streamed = np.maximum(np.where(a.garbage, 0, a.rows), np.where(d.garbage, 0, d.rows))
    streamed = np.clip(streamed, LEAST_ROWS, dim)
    brings = (computes.w.garbage == 0) & (computes.fresh == 1)
    follows = np.append(brings[1:] & (computes.config[1:] == computes.config[:-1]), False)[: len(streamed)]
    every = follows | (computes.settings["dataflow"] == 0) | (computes.settings["transpose_a"] == 1)
    return np.where(every, dim, streamed)
