"""C headers: groups of macros with comments, and bit-field structures of instruction layouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tilewright.program.instruction import Layout

#: {macro: value}. A value is a number, or text that is written unchanged.
Macros = Mapping[str, int | str]

ASSERT = """\
#if defined(__cplusplus) && __cplusplus >= 201103L
#define TILEWRIGHT_ASSERT(condition, text) static_assert(condition, text)
#elif !defined(__cplusplus) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define TILEWRIGHT_ASSERT(condition, text) _Static_assert(condition, text)
#else
#define TILEWRIGHT_ASSERT(condition, text)
#endif"""


class Group(NamedTuple):
    """Macros of a C header under one comment.

    If `given`, a build may define the macros on its command line (-D), with the same values. If `only_with` is the name
    of a macro, the group is defined only when that macro is defined.
    """

    comment: str
    macros: Macros
    given: bool = False
    only_with: str = ""


def header(guard: str, about: str, groups: Sequence[Group], code: Sequence[str] = ()) -> str:
    """Return the text of a header for C and C++ with groups of macros, followed by the lines of `code`."""
    lines = [f"/* {about} Written by tilewright; do not edit. */", f"#ifndef {guard}", f"#define {guard}"]
    for group in groups:
        lines += ["", f"/* {group.comment} */", *(_same(group.macros) if group.given else ())]
        width = max(map(len, group.macros), default=0)
        defined = [f"#define {name:{width}} {value}" for name, value in group.macros.items()]
        lines += [f"#ifdef {group.only_with}", *defined, "#endif"] if group.only_with else defined
    if code:
        lines += ["", "#include <stdint.h>", "", ASSERT, "", *code]
    return "\n".join(lines).rstrip() + f"\n\n#endif /* {guard} */\n"


def _same(macros: Macros) -> Iterator[str]:
    """Yield lines that stop a build (#error) if it defines one of these macros as another number."""
    numbers = {name: value for name, value in macros.items() if isinstance(value, int) or value[:2] == "0x"}
    tests = [f"(defined({name}) && {name} != {value})" for name, value in numbers.items()]
    if tests:
        yield "#if " + " || \\\n    ".join(tests)
        yield '#error "a macro defined on the command line belongs to another configuration"'
        yield "#endif"


def macros(prefix: str, values: Mapping[str, int | str]) -> Macros:
    """Return macros with the names PREFIX_KEY (in capitals) and the values of the keys."""
    return {f"{prefix}_{name}".upper(): value for name, value in values.items()}


def bit_ranges(prefix: str, layout: Layout) -> Macros:
    """Return macros with the first bit (PREFIX_FIELD_0) and the last bit (PREFIX_FIELD_1) of each field."""
    return macros(
        prefix,
        {f"{f.name}_{end}": layout.offsets[f.name] + end * (f.width - 1) for f in layout.fields for end in (0, 1)},
    )


def structure(name: str, layout: Layout, names: Mapping[str, str] | None = None) -> list[str]:
    """Return the lines of a C bit-field structure with the layout's fields. `names` renames fields."""
    # Common C compilers for little-endian machines place bit fields in a word from the lowest bit up, like a layout.
    # Gaps are explicit, and an assertion checks the size.
    lines = ["typedef struct {"]
    bit = 0
    word = layout.word_bits
    for field in layout.fields:
        lines += _gap(bit, layout.offsets[field.name], word)
        bit = layout.offsets[field.name] + field.width
        kind = f"{'' if field.signed else 'u'}int{word}_t"
        lines.append(f"  {kind} {(names or {}).get(field.name, field.name)} : {field.width}; /* {field.doc} */")
    lines += [*_gap(bit, layout.bits, word), f"}} {name};"]
    assertion = f'TILEWRIGHT_ASSERT(sizeof({name}) == {layout.nbytes}, "{name} has {layout.bits} bits");'
    return [*lines, assertion, ""]


def _gap(start: int, end: int, word: int) -> Iterator[str]:
    """Yield declarations of unnamed bit fields for the bits `start` to `end - 1`."""
    while start < end:  # one bit field for each word, because a bit field must not cross a word boundary
        stop = min(end, start - start % word + word)
        yield f"  uint{word}_t : {stop - start};"
        start = stop
