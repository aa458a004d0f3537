"""All functions with random arguments: what a kernel in C gives is what the Python form gets."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.targets.bm1684x.native.build import launch, load
from tilewright.targets.bm1684x.capi.forms import DeviceFunction
from tilewright.targets.bm1684x.capi.names import PROTOTYPES, dim2, dim4, padding_t, scalar_t, variable_t
from tilewright.targets.bm1684x.native.replay import Replay
from tilewright.targets.bm1684x.values.dtypes import DTYPES, Rounding

pytestmark = pytest.mark.gxx
TYPES = {dtype.code: dtype for dtype in DTYPES.values()}


def argument(kind: str, pick: random.Random) -> tuple[str, Any]:
    """Return a random argument of a C type: its text in C, and what the Python form gets."""
    number = pick.randrange(1 << 20)
    match kind:
        case "local_addr_t" | "static_addr_t" | "unsigned int":
            return f"{number}u", number
        case "system_addr_t" | "addr_t":
            return f"{number << 20}ull", number << 20
        case "int":
            return str(-number), -number
        case "bool":
            return ("true", True) if number % 2 else ("false", False)
        case "char":
            return str(number % 256 - 128), number % 256 - 128
        case "unsigned char":
            return str(number % 256), number % 256
        case "float":
            return f"{number}.5f", number + 0.5
        case "scalar_t":
            return f"(scalar_t){{.f32 = {number}.5f}}", scalar_t(
                struct.unpack("<I", struct.pack("<f", number + 0.5))[0]
            )
        case "data_type_t":
            code = pick.choice(sorted(TYPES))
            return f"(data_type_t){code}", TYPES[code]
        case "rounding_mode_t":
            return f"(rounding_mode_t){number % 7}", Rounding(number % 7)
        case "const variable_t *":
            if number % 2:
                return f"&(variable_t){{SCALAR, {{.scalar.u32 = {number}}}}}", variable_t(1, scalar_t(number))
            return f"&(variable_t){{VECTOR, {{.addr = {number}}}}}", variable_t(2, number)
    struct_type = {"const dim4 *": (dim4, 4), "const dim2 *": (dim2, 2), "const padding_t *": (padding_t, 4)}[kind]
    values = [pick.randrange(1 << 16) for _ in range(struct_type[1])]
    if number % 4 == 0:
        return "NULL", None
    name = kind.removeprefix("const ").removesuffix(" *")
    return f"&({name}){{{', '.join(map(str, values))}}}", struct_type[0](*values)


def test_arguments_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    pick = random.Random(seed)
    lines, expected = [], []
    for prototype in pick.sample(list(PROTOTYPES.values()), len(PROTOTYPES)):
        pairs = [argument(kind, pick) for kind, _ in prototype.parameters]
        lines.append(f"{prototype.name}({', '.join(text for text, _ in pairs)});")
        expected.append((prototype.name, tuple(value for _, value in pairs), f":{len(lines) + 2}"))
    body = "\n".join(lines)
    library = load(tmp_path, f"void all(const void *p) {{\n{body}\n}}\nTPUKERNEL_FUNC_REGISTER(all)\n")
    arrived: list[tuple[str, tuple[Any, ...], str]] = []

    def issued(self: Replay, function: DeviceFunction, name: str, arguments: tuple[Any, ...]) -> None:
        arrived.append((name, arguments, self.tpu.place.removeprefix(str(tmp_path / "kernel.c"))))

    monkeypatch.setattr(Replay, "_issue", issued)
    launch(library, "all")
    assert arrived == expected
