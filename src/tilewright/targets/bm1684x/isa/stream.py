"""Decode the bytes of a command queue to commands with named fields, and encode them; the bit fields of all formats.

Fields are listed from the lowest bit up; docs/bm1684x.md names their sources. A field is NAME:WIDTH (a WIDTH of 1 is
left out); `-:WIDTH` is reserved. The compute engine (tiu) has one long format for all of its commands, and short
formats for most of them. The DMA engine has a long format per command type, and a few short formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.program.instruction import Field, Layout
from tilewright.targets.bm1684x.isa.operation import DMA, TIU

TIU_HEAD = "cmd_short cmd_id:20 cmd_id_dep:20 tsk_typ:4 tsk_eu_typ:5"
OUTPUT = "res0_n:16 res0_c:16 res0_h:16 res0_w:16"
PLACES = "res0_addr:32 opd0_addr:32 opd1_addr:32 opd2_addr:32"
PADS = "opd0_up_pad:4 opd0_dn_pad:4 opd0_lf_pad:4 opd0_rt_pad:4 res_op_x_str:4 res_op_y_str:4"
INSERTED = "opd0_x_ins0:4 opd0_y_ins0:4 opd1_x_ins0:4 opd1_y_ins0:4"
ENABLE = "cmd_id_en:4 pwr_step:4"
SIGNS = "opd0_sign opd1_sign opd2_sign"

TIU_LONG = f"""{TIU_HEAD} eu_half_en tsk_opd_num:2 pad_mode:2 {ENABLE} intr_en res_add relu left_tran - kernel_rotate
    {SIGNS} res0_prec:3 opd0_prec:3 opd1_prec:3 opd2_prec:3 opd0_const opd1_const opd2_const res0_str:3 opd0_str:3
    opd1_str:3 opd2_str:3 res_add_sign -:25 - opd3_const - {INSERTED} {PADS} res0_h_shift:4 res0_w_shift:4
    opd0_h_shift:4 opd0_w_shift:4 opd1_h_shift:4 opd1_w_shift:4 tsk_lane_num_l32:32 tsk_lane_num_h32:32 {OUTPUT}
    opd0_n:16 opd0_c:16 opd0_h:16 opd0_w:16 opd1_n:16 opd1_c:16 opd1_h:16 opd1_w:16 res0_n_str:16 res0_c_str:16
    opd0_n_str:16 opd0_c_str:16 opd1_n_str:16 opd1_c_str:16 opd2_n_str:16 opd2_c_str:16 {PLACES} res0_h_str:32
    res0_w_str:32 opd0_h_str:32 opd0_w_str:32 opd1_h_str:32 opd1_w_str:32 opd2_h_str:32 opd2_w_str:32 res1_addr:32
    opd3_addr:32"""

#: The compute engine's short formats.
TIU_SHORT = {
    "CONV": f"""{TIU_HEAD} {SIGNS} pad_mode:2 {ENABLE} res_add kernel_rotate res0_prec:3 opd0_prec:3 opd1_const
        opd2_const {PADS} opd3_const opd0_str:3 res0_addr:26 intr_en {INSERTED} opd0_n_str:16 {OUTPUT} opd0_c:16
        opd0_h:16 opd0_w:16 opd1_h:16 opd1_w:16 opd0_c_str:16 opd0_addr:32 opd1_addr:32 opd2_addr:32 res1_addr:32
        opd3_addr:32 opd0_h_str:16 opd0_w_str:16""",
    "PorD": f"""{TIU_HEAD} kernel_rotate opd0_sign opd1_sign pad_mode:2 {ENABLE} opd1_const opd2_const opd3_const
        res0_prec:3 opd0_prec:3 {INSERTED} {PADS} opd2_n_str:3 -:11 opd2_sign intr_en {OUTPUT} opd0_h:16 opd0_w:16
        opd1_h:16 opd1_w:16 {PLACES} res1_addr:32 opd3_addr:32 -:32 -:32""",
    "MM": f"""{TIU_HEAD} res_add left_tran opd0_const opd2_const - {ENABLE} intr_en {SIGNS} res0_prec:3 opd0_prec:3
        opd2_n_str:3 -:20 -:16 res0_c:16 res0_w:16 opd0_n:16 opd0_c:16 opd0_w:16 -:16 opd1_w:16 {PLACES}
        opd3_addr:32""",
    "MM2": f"""{TIU_HEAD} opd0_sign opd1_sign res0_prec:3 {ENABLE} opd2_const res0_c:16 res0_w:16 opd1_c:16 opd1_w:16
        opd0_prec:3 opd0_const opd1_const res_add res0_addr:25 intr_en opd0_addr:32 opd1_addr:32 opd2_addr:32""",
    "AR": f"""{TIU_HEAD} opd0_const opd1_const opd2_const tsk_opd_num:2 {ENABLE} intr_en res0_prec:3 opd0_prec:3
        opd1_prec:3 opd2_prec:3 opd0_sign opd1_sign res0_str:3 opd0_str:3 opd1_str:3 opd2_n_str:3 -:6 {OUTPUT} {PLACES}
        res0_n_str:16 res0_c_str:16 opd0_n_str:16 opd0_c_str:16 opd1_n_str:16 opd1_c_str:16 res0_h_str:20
        res0_w_str:20 opd0_h_str:20 opd2_sign -:3 opd0_w_str:20 opd1_h_str:20 opd1_w_str:20 -:4""",
    "RQ&DQ": f"""{TIU_HEAD} opd0_sign opd2_sign res0_prec:3 {ENABLE} opd1_const opd0_prec:3 opd2_n_str:6 res0_addr:27
        opd0_addr:27 intr_en {OUTPUT} opd1_addr:32 opd2_addr:32""",
    "TRANS&BC": f"""{TIU_HEAD} res0_prec:3 -:2 {ENABLE} intr_en {OUTPUT} opd0_c:16 opd0_w:16 -:32 res0_addr:32
        opd0_addr:32""",
    "SG": f"""{TIU_HEAD} opd3_const intr_en opd0_str:3 {ENABLE} opd2_const {OUTPUT} opd0_h:16 opd0_w:16 opd1_c:16
        opd1_w:16 res0_prec:3 res0_addr:29 opd0_prec:3 opd0_addr:29 opd1_prec:3 opd1_addr:29 opd2_addr:32
        res1_addr:32 opd3_addr:32""",
    "SGL": f"""{TIU_HEAD} -:3 opd3_const intr_en {ENABLE} opd2_const res0_prec:3 opd1_prec:3 opd0_str:3 -:7 {OUTPUT}
        opd0_h:16 {PLACES} res1_addr:32 -:32 -:32""",
    "SEG": f"{TIU_HEAD} -:2 res0_prec:3 {ENABLE} intr_en res0_c:16 res0_w:16 res0_addr:32",
    "SFU": f"""{TIU_HEAD} -:5 {ENABLE} intr_en res0_prec:3 opd0_prec:3 opd2_n_str:2 -:8 {OUTPUT} opd1_n:16
        res0_addr:32 opd0_addr:32 opd1_addr:32""",
    "LIN": f"{TIU_HEAD} opd1_const opd2_const res0_prec:3 {ENABLE} intr_en {OUTPUT} {PLACES}",
    "CMP": f"""{TIU_HEAD} opd0_const opd1_const opd2_const opd3_const - {ENABLE} intr_en opd0_prec:3 opd2_prec:3
        opd0_str:3 opd1_str:3 -:51 opd0_sign {OUTPUT} res0_addr:32 res1_addr:32 opd0_addr:32 opd1_addr:32
        opd2_addr:32 opd3_addr:32""",
    "VC": f"""{TIU_HEAD} opd0_sign opd1_sign opd2_n_str:3 {ENABLE} intr_en res0_prec:3 opd0_prec:3 opd1_prec:3
        res0_addr:32 -:23 opd0_addr:32 -:16 res0_c:16 res0_w:16 opd0_c:16 opd0_w:16 opd1_w:16 opd1_addr:32
        opd2_addr:32 -:32 -:32""",
}
#: Formats that are neither short nor long: linear arithmetic in 128 bits, and queue control.
TIU_OTHER = {
    "LAR": """opd0_w_str opd1_w_str opd2_const res0_prec:3 opd0_prec:3 opd1_prec:3 opd2_n_str:3 opd0_sign opd1_sign
        start_tid:6 res0_c:8 res0_w:8 -:2 tsk_typ:4 tsk_eu_typ:5 - tsk_opd_num:2 -:6 pwr_step:4 - res0_addr:16
        opd0_addr:16 opd1_addr:16 opd2_addr:16""",
    "SYSID": """- cmd_id:20 cmd_id_dep:20 tsk_typ:4 tsk_eu_typ:5 -:5 cmd_id_en:4 pwr_step:4 intr_en cmd_id_eng1:20
        cmd_id_eng2:20 cmd_id_eng3:20 -:4""",
}

DMA_HEAD = """intr_en stride_enable nchw_copy cmd_short decompress_enable cmd_id_en:4 cmd_id:20 -:3 cmd_type:4
    cmd_special_function:3 fill_constant_en src_data_format:3"""
DMA_DEP = "cmd_id_dep:20 -:12 constant_value:32"
DMA_FULL = f"{DMA_HEAD} -:21 {DMA_DEP}"
SRC_SIZES, DST_SIZES = (" ".join(f"{end}_{d}size:16" for d in "nchw") for end in ("src", "dst"))
SRC_STRIDES, DST_STRIDES = (" ".join(f"{end}_{d}stride:32" for d in "nchw") for end in ("src", "dst"))
BOTH = """src_start_addr_l32:32 src_start_addr_h8:8 -:24 dst_start_addr_l32:32 dst_start_addr_h8:8 -:24"""
MASK = "localmem_mask_l32:32 localmem_mask_h32:32"
STRIDED = f"{DMA_FULL} {SRC_STRIDES} {DST_STRIDES} {SRC_SIZES} {DST_SIZES}"
INDEXED = f"""{DMA_FULL} src_cstride:32 src_hstride:32 dst_cstride:32 dst_hstride:32 index_cstride:32 index_hstride:32
    -:16 src_csize:16 src_hsize:32 src_wsize:16 dst_csize:16 dst_hsize:32 dst_wsize:16 index_csize:16 index_hsize:32
    {BOTH} index_start_addr_l32:32 index_start_addr_h8:8 -:24 {MASK}"""

DMA_LONG = {
    "DMA_tensor": f"{STRIDED} {BOTH} -:32 -:32 {MASK}",
    #: Two names are swapped here: `*_addr_h32` holds the 32 low bits of an address, `*_addr_l8` the 8 high bits.
    "DMA_matrix": f"""{STRIDED} src_start_addr_h32:32 src_start_addr_l8:8 -:24 dst_start_addr_h32:32
        dst_start_addr_l8:8 -:24 -:32 -:32 {MASK}""",
    "DMA_cw_transpose": f"{STRIDED} {BOTH} -:32 -:32 {MASK}",
    "DMA_general": f"{STRIDED} {BOTH} -:32 -:32 {MASK}",  # src_cstride is the number of elements moved
    "DMA_masked_select": f"""{DMA_HEAD} mask_data_format:3 -:18 {DMA_DEP} {SRC_STRIDES} {DST_STRIDES} {SRC_SIZES}
        {DST_SIZES} {BOTH} mask_start_addr_l32:32 mask_start_addr_h8:32 {MASK}""",
    "DMA_nonzero": f"""{DMA_HEAD} index_data_format:3 -:18 {DMA_DEP} {SRC_STRIDES} {DST_STRIDES} {SRC_SIZES}
        {DST_SIZES} {BOTH} -:32 -:32 {MASK}""",
    "DMA_gather": INDEXED,
    "DMA_scatter": INDEXED,
}
#: The DMA engine's short formats, without that of DMA_matrix, which is not known well enough.
DMA_SHORT = {
    "DMA_sys": DMA_FULL,
    "DMA_general": f"{DMA_FULL} src_cstride:32 dst_csize:16 -:16 {BOTH} {MASK}",
    "DMA_masked_select": f"""{DMA_HEAD} mask_data_format:3 -:18 cmd_id_dep:20 -:12 {SRC_SIZES} {DST_SIZES}
        {BOTH} mask_start_addr_l32:32 mask_start_addr_h8:32 -:32 -:32 -:32""",
    "DMA_nonzero": f"""{DMA_HEAD} index_data_format:3 -:18 cmd_id_dep:20 -:12 dst_nstride:32 {SRC_SIZES} {BOTH} -:32
        -:32""",
}

#: The compute engine's formats by task type. Types 2 and 6 have two formats each; the function tells them apart.
TIU_TYPES = {0: "CONV", 1: "PorD", 2: "MM", 3: "AR", 4: "RQ&DQ", 5: "TRANS&BC", 6: "SG", 7: "LAR", 9: "SFU"}
TIU_TYPES |= {10: "LIN", 13: "CMP", 14: "VC", 15: "SYSID"}
MM2_FUNCTIONS, SGL_FUNCTIONS = (4, 5, 6), (17, 18, 19)
DMA_TYPES = {0: "DMA_tensor", 1: "DMA_matrix", 2: "DMA_masked_select", 3: "DMA_general", 4: "DMA_cw_transpose"}
DMA_TYPES |= {5: "DMA_nonzero", 6: "DMA_sys", 7: "DMA_gather", 8: "DMA_scatter"}
_NUMBERS = {name: number for types in (TIU_TYPES, DMA_TYPES) for number, name in types.items()} | {"MM2": 2, "SGL": 6}
RESERVED = "-"
ALL_LANES = 0xFFFF_FFFF
#: Bit positions of a compute command's type and function, and the size in bytes of the shortest command.
TIU_TYPE, TIU_FUNCTION, TIU_BYTES = 41, 45, 16
#: Bit positions of a DMA command's `short` flag and type.
DMA_SHORT_BIT, DMA_TYPE = 3, 32
#: The function or format of the command that ends a queue, and by engine the fields of that command.
TIU_END, SYS, DMA_SYS = 31, "SYSID", "DMA_sys"
ENDS = {TIU: (SYS, {"tsk_typ": 15, "tsk_eu_typ": TIU_END}), DMA: (DMA_SYS, {"cmd_short": 1, "cmd_type": 6})}


@dataclass(frozen=True)
class Format:
    """One command format. `short` is the value of the field cmd_short. Reserved fields are called -0, -1, .."""

    name: str
    short: bool
    layout: Layout

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all fields that are not reserved."""
        return tuple(field.name for field in self.layout.fields if not field.name.startswith(RESERVED))


def heading(form: Format) -> dict[str, int]:
    """Return the fields that have the same value in all commands of a format, with their values."""
    if not form.name.startswith("DMA"):
        return {"cmd_short": int(form.short), "tsk_typ": _NUMBERS[form.name]}
    masks = dict.fromkeys(("localmem_mask_l32", "localmem_mask_h32"), ALL_LANES)
    return {"cmd_short": int(form.short), "cmd_type": _NUMBERS[form.name], "stride_enable": 1, **masks}


def _format(name: str, short: bool, text: str) -> Format:
    words = [word.partition(":") for word in text.split()]
    fields = [
        Field(f"{RESERVED}{number}" if own == RESERVED else own, int(width or 1))
        for number, (own, _, width) in enumerate(words)
    ]
    ends = accumulate(field.width for field in fields)
    fits = all((end - own.width) // 32 == (end - 1) // 32 for own, end in zip(fields, ends, strict=True))
    return Format(name, short, Layout(name, tuple(fields), 32 if fits else 64))


FORMATS: dict[tuple[str, bool], Format] = {
    **{(name, False): _format(name, False, TIU_LONG) for name in TIU_SHORT},
    **{(name, True): _format(name, True, text) for name, text in TIU_SHORT.items()},
    **{(name, short): _format(name, True, text) for name, text in TIU_OTHER.items() for short in (False, True)},
    **{(name, False): _format(name, False, text) for name, text in DMA_LONG.items()},
    **{(name, True): _format(name, True, text) for name, text in DMA_SHORT.items()},
}


@dataclass(frozen=True)
class Encoded:
    """One command as its fields, without the reserved fields. `number` is its position in its queue, from 0."""

    engine: str
    number: int
    format: Format
    fields: Mapping[str, int]

    def __getitem__(self, name: str) -> int:
        return self.fields[name]

    def get(self, name: str) -> int:
        """Return the value of a field, or 0 if the format does not have the field."""
        return self.fields.get(name, 0)

    @property
    def id(self) -> int:
        """The number of the command among those of its engine, from 1; 0 if the format has no such field."""
        return self.get("cmd_id")

    @property
    def needs(self) -> int:
        """The number of the other engine's command that must end before this one starts; 0 if it does not wait."""
        return self.get("cmd_id_dep")

    @property
    def is_end(self) -> bool:
        return (self.format.name == SYS and self["tsk_eu_typ"] == TIU_END) or self.format.name == DMA_SYS

    def __str__(self) -> str:
        return f"{self.engine} command {self.number} ({self.format.name})"


def decode(engine: str, raw: Array) -> list[Encoded]:
    """Return the commands in the bytes (uint8) of a queue, up to its end command. The bytes after that are padding.

    Raises ProgramError if the queue is cut short, has no end command, or has a command of an unknown format.
    """
    found: list[tuple[Format, int]] = []
    position, ended = 0, False
    while position < len(raw) and not ended:
        where = f"{engine} command {len(found)}"
        form, ended = _format_of(engine, raw[position : position + TIU_BYTES], where)
        size = form.layout.nbytes
        if position + size > len(raw):
            left = len(raw) - position
            reason = f"the {form.name} command at byte {position} has {size} bytes; only {left} are left"
            raise ProgramError(f"{engine} queue", reason)
        found.append((form, position))
        position += size
    if not ended:
        raise ProgramError(f"{engine} queue", "it has no end command", f"end it with {SYS} (tiu) or {DMA_SYS} (dma)")
    decoded: dict[int, Encoded] = {}
    for form, numbers in _by_format(form for form, _ in found):
        starts = np.array([found[number][1] for number in numbers])
        columns = form.layout.decode(raw[starts[:, None] + np.arange(form.layout.nbytes)])
        values = zip(*(columns[name].tolist() for name in form.names), strict=True)
        for number, row in zip(numbers, values, strict=True):
            decoded[number] = Encoded(engine, number, form, dict(zip(form.names, row, strict=True)))
    return [decoded[number] for number in range(len(found))]


def encode(commands: Iterable[Encoded]) -> Array:
    """Return the bytes (uint8) of commands, without padding. Raises ProgramError if a field is unknown or too large."""
    given = list(commands)
    parts: dict[int, Array] = {}
    for form, places in _by_format(command.format for command in given):
        own = [given[place] for place in places]
        for command in own:
            if unknown := sorted(command.fields.keys() - form.layout.by_name.keys()):
                raise ProgramError(str(command), f"the format {form.name} has no field {unknown[0]}")
        rows, numbers = [command.fields for command in own], np.array([command.number for command in own])
        raw = form.layout.encode_rows(rows, numbers)
        parts.update(zip(places, raw, strict=True))
    return np.concatenate([parts[place] for place in range(len(given))]) if given else np.empty(0, np.uint8)


def queue(engine: str, commands: Sequence[Encoded]) -> Array:
    """Return the bytes (uint8) of a queue: `commands`, then the end command.

    Raises ProgramError if a field is unknown or too large.
    """
    name, fields = ENDS[engine]
    count = len(commands)
    return encode([*commands, fresh(engine, count, name, True, {**fields, "cmd_id": count + 1})])


def _by_format(formats: Iterable[Format]) -> list[tuple[Format, list[int]]]:
    found: dict[int, tuple[Format, list[int]]] = {}
    for place, form in enumerate(formats):
        found.setdefault(id(form), (form, []))[1].append(place)
    return list(found.values())


def fresh(engine: str, number: int, name: str, short: bool, fields: Mapping[str, int]) -> Encoded:
    """Return an encoded command of the format (`name`, `short`) with the given fields; all other fields are 0.

    Raises ProgramError for an unknown format.
    """
    form = FORMATS.get((name, short))
    if form is None:
        raise ProgramError(f"{engine} command {number}", f"there is no {'short ' if short else ''}format {name}")
    return Encoded(engine, number, form, {field: fields.get(field, 0) for field in form.names} | dict(fields))


def _format_of(engine: str, raw: Array, where: str) -> tuple[Format, bool]:
    if len(raw) < TIU_BYTES:
        raise ProgramError(where, f"only {len(raw)} bytes are left; a command has at least {TIU_BYTES}")
    head = int.from_bytes(raw[:TIU_BYTES].tobytes(), "little")
    if engine == TIU:
        kind, function = head >> TIU_TYPE & 15, head >> TIU_FUNCTION & 31
        name, short = TIU_TYPES.get(kind, ""), bool(head & 1)
        if name == "MM" and function in MM2_FUNCTIONS:
            name = "MM2"
        elif name == "SG" and function in SGL_FUNCTIONS:
            name = "SGL"
    elif engine == DMA:
        kind = head >> DMA_TYPE & 15
        name, short = DMA_TYPES.get(kind, ""), bool(head >> DMA_SHORT_BIT & 1)
    else:
        raise ProgramError(where, f"no command format of the engine {engine} is known", f"give {TIU} or {DMA}")
    form = FORMATS.get((name, short))
    if form is None:
        raise ProgramError(where, f"command type {kind}{' (short)' if short else ''} has no known format")
    return form, name == DMA_SYS or (name == SYS and engine == TIU and (head >> TIU_FUNCTION & 31) == TIU_END)
