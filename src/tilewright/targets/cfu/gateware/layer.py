"""The registers that describe a layer, and the products of them that address its elements."""

from __future__ import annotations

from amaranth.hdl import Module, Shape, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from tilewright.hdl.parts import Part, drive
from tilewright.targets.cfu.isa.coupled import BANKS
from tilewright.targets.cfu.isa.state import FIELDS, LAYER_BITS, Reg

#: Registers that other blocks keep, because they count on by themselves.
ELSEWHERE = (Reg.POINTER, Reg.CHANNEL, Reg.FETCH_ROW, Reg.DOT)
ADDRESS = 16
#: Derived values. row_pitch: bytes of a row of the input; step_x, step_y: bytes from a window to the next one to the
#: right and below; row_jump: from the last byte of a row of a window to the first one of its next row; origin: the
#: address of the first window; size: bytes of an output; all_banks: whether an addition may run at full speed.
PRODUCTS = {
    **dict.fromkeys(("row_pitch", "step_x", "step_y", "row_jump", "origin"), ADDRESS),
    "size": 36,
    "all_banks": 1,
}
LAYER = data.StructLayout(
    {reg.name.lower(): Shape(abs(bits), bits < 0) for reg, bits in LAYER_BITS.items() if reg not in ELSEWHERE}
    | {name: Shape(bits) for name, bits in PRODUCTS.items()}
)


class LayerRegisters(Part):
    """The layer registers. `put` is high in the cycle of its command: it sets register number `first` to `second`.

    `layer` is a struct of their values and of the products. Products are valid from the second cycle after `put` on,
    which is the first in which the CFU can take the next command.
    """

    def __init__(self) -> None:
        super().__init__(put=In(1), first=In(32), second=In(32), layer=Out(LAYER))

    def define(self, m: Module) -> None:
        layer = self.layer
        for reg, bits in LAYER_BITS.items():
            if reg not in ELSEWHERE:
                name = reg.name.lower()
                value = Signal(Shape(abs(bits), bits < 0), name=name)
                m.d.comb += layer[name].eq(value)
                with m.If(self.put & (self.first == FIELDS[reg.name])):
                    m.d.sync += value.eq(self.second)
        pitch, pixels = Signal(ADDRESS, name="pitch"), Signal(20, name="pixels")
        m.d.sync += [pitch.eq(layer.in_w * layer.in_c), pixels.eq(layer.out_h * layer.out_w)]
        m.d.comb += drive(
            layer,
            row_pitch=pitch,
            step_x=layer.stride_w * layer.in_c,
            step_y=layer.stride_h * pitch,
            row_jump=pitch - layer.kernel_w * layer.in_c + 1,
            origin=layer.input - layer.pad_h * pitch - layer.pad_w * layer.in_c,
            size=pixels * layer.out_c,
            all_banks=pixels >= BANKS,
        )
