"""The C types of the parameters of every function are those of the vendor's header."""

from __future__ import annotations

import pytest

from tests.targets.bm1684x.vendor.library import prototypes as published
from tilewright.targets.bm1684x.capi.names import PROTOTYPES

#: Types that are the same in C, or that C converts without a loss: by the name in the header, the name here.
SAME = {"u32": "unsigned int", "u64": "unsigned long long", "_Bool": "bool", "global_addr_t": "system_addr_t"}


def _of_header(kind: str) -> str:
    plain = kind.replace(" *", "")
    return f"const {plain} *" if kind.endswith("*") else SAME.get(kind, kind)


@pytest.mark.vendor
def test_parameters_have_the_types_of_the_header() -> None:
    theirs = published()
    wrong = [
        f"{prototype.declaration}: the header has {theirs[prototype.name]}"
        for prototype in PROTOTYPES.values()
        if [kind for kind, _ in prototype.parameters]
        != [_of_header(kind) for kind, _ in theirs.get(prototype.name, ())]
    ]
    assert not wrong, "\n".join(wrong)
