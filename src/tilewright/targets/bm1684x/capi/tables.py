"""Functions of the device API that load tables of static memory, and those that the chip does not have."""

from __future__ import annotations

from importlib.resources import files

from tilewright.errors import MachineError
from tilewright.targets.bm1684x.capi.forms import Functions, Given, Issuer, Run
from tilewright.targets.bm1684x.config import STATIC_BASE
from tilewright.targets.bm1684x.layouts import layout
from tilewright.targets.bm1684x.layouts.layout import Shape
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.values.dtypes import F32
from tilewright.targets.bm1684x.values.tables import OFFSETS


def _load(name: str) -> Run:
    """Return the C function that copies a table to all lanes."""

    def run(api: Issuer, given: Given) -> None:
        dtype = given.get("dtype", F32)
        if (name, dtype) not in OFFSETS:
            known = ", ".join(str(own) for table, own in OFFSETS if table == name)
            raise MachineError(given["name"], f"static memory has no such table of {dtype}", f"give {known}")
        offset, count = OFFSETS[name, dtype]
        api.begins(given["coeff"], "aligned")  # although it is compact
        y = api.local(given["coeff"], Shape(1, api.config.lanes, 1, count), None, dtype, layout.compact)
        x = Tensor.ddr(STATIC_BASE + offset, (1, 1, 1, count), dtype, api.config)
        api.issue("static_bcast", {"x": x}, {"y": y})

    return run


LOADED = ("log", "sin", "cos", "arcsin", "tan", "erf")
#: Functions by name, without the prefix tpu_bdc_.
LOADS: Functions = {
    **{f"load_{kind}_{name}_coeff": _load(name) for kind in ("fp32", "fp") for name in (*LOADED, "exp")},
}

#: Functions of later chips: their parameters are not checked, as the vendor's model refuses every call.
REFUSED = frozenset(files(__package__).joinpath("later.txt").read_text(encoding="utf-8").split())
