"""Properties of a design, read from the C++ that Verilator writes for it: its memories, and safe short cuts.

verilator.h can skip the falling edge of the clock, and detect cycles in which nothing changes. Each short cut is exact
only for certain designs. Text that these patterns do not match forbids a short cut; it is never an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBER = r"(?:[CSIQ]Data|VlWide<\d+>|double|bool)(?:/\*.*?\*/)?"
_ARRAY = rf"VlUnpacked<(?P<of>{_NUMBER}|(?:VlUnpacked<)+{_NUMBER}(?:, \d+>)+), (?P<depth>\d+)>"
#: A member that is an array, but not one of Verilator's own.
MEMORY = re.compile(rf"^(?P<head> +){_ARRAY} (?P<name>(?!__V)\w+);$", re.MULTILINE)
MEMBER = re.compile(rf" *(?:VL_(?:IN|OUT|INOUT)\w*\(.*|(?:{_NUMBER}|{_ARRAY}) \w+;|struct {{|}};|//.*|)")
STATE = re.compile(r"// DESIGN SPECIFIC STATE\n(.*?)// INTERNAL VARIABLES", re.DOTALL)
#: Functions whose results depend only on their arguments, and macros.
_STEMS = (
    "ASSIGN ASSIGNBIT ASSIGNSEL ADD SUB MUL MULS DIV DIVS MODDIV MODDIVS POW AND OR XOR NOT EXTEND EXTENDS EXTENDSIGN "
    "CLEAN SHIFTL SHIFTR SHIFTRS SEL BITSEL CONCAT REPLICATE REDAND REDOR REDXOR COUNTONES COUNTBITS ONEHOT ONEHOT0 "
    "CLOG2 MOSTSETBITP1 CMP EQ NEQ GT GTE LT LTE GTS GTES LTS LTES NEGATE NEGATE_INPLACE ZERO ALLONES CONST STREAML "
    "STREAML_FAST MEMCPY MEMSET_ZERO MEMSET_ONES CHANGEXOR"
)
_MACROS = "DEBUG DEBUG_IF DEBUG_IFDEF DBG_MSGF ATTR_COLD ATTR_UNUSED ATTR_ALWINLINE LIKELY UNLIKELY FATAL_MT PURE"
PURE = re.compile(rf"VL_(?:(?:{'|'.join(_STEMS.split())})_[A-Z0-9]+|{'|'.join(_MACROS.split())})")
CALLED = re.compile(r"\bVL_\w+")
#: State outside of the model, or that its bytes do not show.
HIDDEN = re.compile(r"\bstd::(?!ref\b)|\bstatic\b|Vdpi|Verilated|\bVl(?!Unpacked|Wide)[A-Z]")
#: The clock where it is only an edge: in the trigger, and in the edge's memory.
EDGE = "__Vtrigprevexpr___TOP__clk__0"
DEBUG = re.compile(r"^#ifdef VL_DEBUG\n.*?^#endif.*?\n", re.MULTILINE | re.DOTALL)
EDGES = (
    f"((IData)(vlSelfRef.clk)&(~(IData)(vlSelfRef.{EDGE})))",
    f"vlSelfRef.{EDGE}=vlSelfRef.clk;",
)
CLOCK = re.compile(r"(?:\.|->)clk\b")


def evaluation(code: str) -> str:
    """Return C++ without comments, and without code that is compiled for debugging only."""
    return re.sub("//.*", "", DEBUG.sub("", code))


def posedge_only(code: Iterable[str]) -> bool:
    """Return whether a design uses its clock `clk` for nothing but rising edges. `code`: its `evaluation`."""
    text = re.sub(r"\s", "", "".join(code))
    if EDGES[0] not in text:
        return False
    for use in EDGES:
        text = text.replace(use, "")
    return not CLOCK.search(text)


def self_contained(headers: Iterable[str], code: Iterable[str]) -> bool:
    """Return whether all of a design's state is in the members of its classes, so that equal bytes are equal states.

    `headers` declare its classes; `code` is its `evaluation`. Files, time, random numbers, queues and strings
    are state elsewhere; printed text is lost if a cycle is left out.
    """
    for header in headers:
        state = STATE.search(header)
        if state is None or not all(MEMBER.fullmatch(line) for line in state[1].rstrip().split("\n")):
            return False
    return not any(HIDDEN.search(text) or not all(map(PURE.fullmatch, CALLED.findall(text))) for text in code)


def tracked(header: str) -> tuple[str, list[str]]:
    """Return a header with `Tracked` (verilator.h) in the place of the types of its memories, and their names."""
    names = [memory["name"] for memory in MEMORY.finditer(header)]
    return MEMORY.sub(r"\g<head>Tracked<\g<of>, \g<depth>> \g<name>;", header), names
