"""Properties of a design, read from Verilator's C++ output: the design's memories, and safe short cuts.

verilator.h can skip the falling edge of the clock, and detect cycles in which nothing changes. Each short cut is exact
only for certain designs. If the C++ text does not match the patterns, the short cut is not used; no error is raised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBER = r"(?:[CSIQ]Data|VlWide<\d+>|double|bool)(?:/\*.*?\*/)?"
_ARRAY = rf"VlUnpacked<(?P<of>{_NUMBER}|(?:VlUnpacked<)+{_NUMBER}(?:, \d+>)+), (?P<depth>\d+)>"
#: A member array of the design. Verilator's own arrays do not match.
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
#: State outside of the model's bytes.
HIDDEN = re.compile(r"\bstd::(?!ref\b)|\bstatic\b|Vdpi|Verilated|\bVl(?!Unpacked|Wide)[A-Z]")
#: The two uses of the clock for edges: the trigger, and the variable with the clock's previous value.
EDGE = "__Vtrigprevexpr___TOP__clk__0"
DEBUG = re.compile(r"^#ifdef VL_DEBUG\n.*?^#endif.*?\n", re.MULTILINE | re.DOTALL)
EDGES = (
    f"((IData)(vlSelfRef.clk)&(~(IData)(vlSelfRef.{EDGE})))",
    f"vlSelfRef.{EDGE}=vlSelfRef.clk;",
)
CLOCK = re.compile(r"(?:\.|->)clk\b")


def evaluation(code: str) -> str:
    """Return C++ text without comments and debugging code."""
    return re.sub("//.*", "", DEBUG.sub("", code))


def posedge_only(code: Iterable[str]) -> bool:
    """Return whether a design uses its clock `clk` only for rising edges. `code` is the design's `evaluation`."""
    text = re.sub(r"\s", "", "".join(code))
    if EDGES[0] not in text:
        return False
    for use in EDGES:
        text = text.replace(use, "")
    return not CLOCK.search(text)


def self_contained(headers: Iterable[str], code: Iterable[str]) -> bool:
    """Return whether the class members of a design contain its whole state, so that equal bytes mean equal states.

    `headers` declare the design's classes, and `code` is its `evaluation`. The result is False if the design uses
    files, time, random numbers, queues or strings, whose state is outside of the members. It is also False if the
    design prints text, because a skipped cycle would print nothing.
    """
    for header in headers:
        state = STATE.search(header)
        if state is None or not all(MEMBER.fullmatch(line) for line in state[1].rstrip().split("\n")):
            return False
    return not any(HIDDEN.search(text) or not all(map(PURE.fullmatch, CALLED.findall(text))) for text in code)


def tracked(header: str) -> tuple[str, list[str]]:
    """Return a header in which memories have the type `Tracked` (verilator.h), and the names of these memories."""
    names = [memory["name"] for memory in MEMORY.finditer(header)]
    return MEMORY.sub(r"\g<head>Tracked<\g<of>, \g<depth>> \g<name>;", header), names
