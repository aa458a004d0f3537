"""Properties of a design, read from Verilator's C++ output: its memories, and the evaluations that can be skipped.

verilator.h can skip the falling edge of the clock, and cycles in which nothing changes. The functions here find out
whether a design allows this. If the C++ text does not match the patterns, nothing is skipped, and no error is raised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBER = r"(?:[CSIQ]Data|VlWide<\d+>|double|bool)(?:/\*.*?\*/)?"
_ARRAY = rf"VlUnpacked<(?P<of>{_NUMBER}|(?:VlUnpacked<)+{_NUMBER}(?:, \d+>)+), (?P<depth>\d+)>"
#: An array that is a member of the design. Arrays of Verilator itself (__V...) do not match.
MEMORY = re.compile(rf"^(?P<head> +){_ARRAY} (?P<name>(?!__V)\w+);$", re.MULTILINE)
MEMBER = re.compile(rf" *(?:VL_(?:IN|OUT|INOUT)\w*\(.*|(?:{_NUMBER}|{_ARRAY}) \w+;|struct {{|}};|//.*|)")
STATE = re.compile(r"// DESIGN SPECIFIC STATE\n(.*?)// INTERNAL VARIABLES", re.DOTALL)
#: Functions of Verilator whose results depend only on their arguments, and harmless macros.
_STEMS = (
    "ASSIGN ASSIGNBIT ASSIGNSEL ADD SUB MUL MULS DIV DIVS MODDIV MODDIVS POW AND OR XOR NOT EXTEND EXTENDS EXTENDSIGN "
    "CLEAN SHIFTL SHIFTR SHIFTRS SEL BITSEL CONCAT REPLICATE REDAND REDOR REDXOR COUNTONES COUNTBITS ONEHOT ONEHOT0 "
    "CLOG2 MOSTSETBITP1 CMP EQ NEQ GT GTE LT LTE GTS GTES LTS LTES NEGATE NEGATE_INPLACE ZERO ALLONES CONST STREAML "
    "STREAML_FAST MEMCPY MEMSET_ZERO MEMSET_ONES CHANGEXOR"
)
_MACROS = "DEBUG DEBUG_IF DEBUG_IFDEF DBG_MSGF ATTR_COLD ATTR_UNUSED ATTR_ALWINLINE LIKELY UNLIKELY FATAL_MT PURE"
PURE = re.compile(rf"VL_(?:(?:{'|'.join(_STEMS.split())})_[A-Z0-9]+|{'|'.join(_MACROS.split())})")
CALLED = re.compile(r"\bVL_\w+")
#: Uses of state that lies outside of the class members.
HIDDEN = re.compile(r"\bstd::(?!ref\b)|\bstatic\b|Vdpi|Verilated|\bVl(?!Unpacked|Wide)[A-Z]")
#: The variable with the previous value of the clock. EDGES has its two uses: it triggers a rising edge, and is updated.
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
    """Return whether a design uses its clock `clk` only for rising edges. `code` has results of `evaluation`."""
    text = re.sub(r"\s", "", "".join(code))
    if EDGES[0] not in text:
        return False
    for use in EDGES:
        text = text.replace(use, "")
    return not CLOCK.search(text)


def self_contained(headers: Iterable[str], code: Iterable[str]) -> bool:
    """Return whether the classes of a design contain its whole state, so that equal bytes mean equal states."""
    for header in headers:
        state = STATE.search(header)
        if state is None or not all(MEMBER.fullmatch(line) for line in state[1].rstrip().split("\n")):
            return False
    # Files, time, random numbers, queues and strings have a state outside of the members. A design that prints text
    # must not skip cycles, because a skipped cycle would print nothing.
    return not any(HIDDEN.search(text) or not all(map(PURE.fullmatch, CALLED.findall(text))) for text in code)


def tracked(header: str) -> tuple[str, list[str]]:
    """Change the type of the memories in a header to `Tracked` (verilator.h). Return the header and their names."""
    names = [memory["name"] for memory in MEMORY.finditer(header)]
    return MEMORY.sub(r"\g<head>Tracked<\g<of>, \g<depth>> \g<name>;", header), names
