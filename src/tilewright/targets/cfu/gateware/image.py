"""The image memory, as the CPU, the array and requantisation access it; the registers of a layer; and dot products."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib import data, memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.parts import Part, drive, flags
from tilewright.targets.cfu.bill import Copies
from tilewright.targets.cfu.config import IMAGE_BYTES
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
        pitch = Signal(ADDRESS, name="pitch")
        pixels = Signal(20, name="pixels")
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


#: Bytes of a word. Words of even and odd numbers are in separate memories, so that two can be written in a cycle.
WORD_BYTES = 4
ADDRESS = ceil_log2(IMAGE_BYTES)
#: Bits of two words that lie side by side, and of the number of a byte in them.
PAIR = 64
IN_PAIR = 3


class ImageMemory(Part):
    """The image memory, 64 KiB. `push` writes `first` and `second` as its next two words; `word` is the next one.

    `put` and `get` are high in the cycle of their command, like `push`. `put` sets the byte address of the next word to
    `second` if `first` is the number of the register POINTER. `get` goes to the next word. A push is at the start of a
    word: the two low bits of the address are ignored. While `busy`, a push writes nothing, but goes on.

    There are equal copies of the memory, which are written together. Each has a port that reads at any time, and one
    that reads and writes. Read port i takes byte address `address_i`; `pair_i` has its word and the next one in the
    cycle after, an even word in the low half. Ports from number `copies.number` on share the port that writes, and are
    read while `gather` is high. While `store` is high, the first `store_count` bytes of `store_data` are written from
    byte address `store_address` on. While `fill` is high, the two words `fill_data` are written from the word of byte
    `fill_address` on. `pointer` is the byte address for the next push or get.
    """

    def __init__(self, copies: Copies) -> None:
        self.copies = copies
        commands = flags(In, "put", "push", "get", "busy", "gather", "store")
        members: dict[str, Any] = {**commands, **dict.fromkeys(("first", "second"), In(32)), "word": Out(32)}
        members |= {"store_address": In(ADDRESS), "store_count": In(3), "store_data": In(32)}
        members |= {"fill": In(1), "fill_address": In(ADDRESS), "fill_data": In(PAIR), "pointer": Out(ADDRESS)}
        for port in range(copies.ports):
            members |= {f"address_{port}": In(ADDRESS), f"pair_{port}": Out(PAIR)}
        super().__init__(**members)

    def define(self, m: Module) -> None:
        copies = self.copies
        pointer = Signal(ADDRESS)
        with m.If(self.put & (self.first == FIELDS["POINTER"])):
            m.d.sync += pointer.eq(self.second)
        with m.If(self.push):
            m.d.sync += pointer.eq(pointer + 2 * WORD_BYTES)
        with m.If(self.get):
            m.d.sync += pointer.eq(pointer + WORD_BYTES)
        # What is written: 8 bytes from an address on, rotated to the places of an even and an odd word.
        word = Signal(ADDRESS, name="word_address")
        address = Signal(ADDRESS, name="address")
        enables = Signal(8)
        content = Signal(PAIR, name="content")
        m.d.comb += [
            self.pointer.eq(pointer),
            word.eq(Mux(self.fill, self.fill_address, pointer)),
            address.eq(Mux(self.store, self.store_address, word & ~(WORD_BYTES - 1))),
            enables.eq(
                Mux(self.store, (1 << self.store_count) - 1, (self.fill | (self.push & ~self.busy)).replicate(8))
            ),
            content.eq(Mux(self.store, self.store_data, Mux(self.fill, self.fill_data, Cat(self.first, self.second)))),
        ]
        at = address[:IN_PAIR]
        enables = (Cat(enables, enables) << at)[8:16]
        content = (Cat(content, content) << (at << 3))[PAIR : 2 * PAIR]
        shared = range(copies.number, copies.ports)
        for number in range(copies.number):
            place = address
            if number < len(shared):
                place = Mux(self.gather, getattr(self, f"address_{shared[number]}"), address)
            written, read = self._copy(m, number, place, enables, content)
            if number < len(shared):
                m.d.comb += getattr(self, f"pair_{shared[number]}").eq(written)
            if number < copies.ports:
                m.d.comb += getattr(self, f"pair_{number}").eq(read)
            if number == 0:
                m.d.comb += self.word.eq(written.word_select(pointer[2], 32))

    def _copy(self, m: Module, number: int, place: Value, enables: Value, content: Value) -> tuple[Value, Value]:
        """Add a copy. Return the pair of words at byte address `place`, and the pair that the copy's own port reads."""
        written = Signal(PAIR, name=f"written_{number}")
        read = Signal(PAIR, name=f"read_{number}")
        for odd in (0, 1):
            rows = memory.Memory(shape=32, depth=IMAGE_BYTES // WORD_BYTES // 2, init=[])
            m.submodules[f"copy_{number}_{'odd' if odd else 'even'}"] = rows
            write = rows.write_port(granularity=8)
            read_write = rows.read_port()
            half = slice(32 * odd, 32 * odd + 32)
            row = _row(place, odd)
            m.d.comb += drive(write, addr=row, en=enables[4 * odd : 4 * odd + 4], data=content[half])
            m.d.comb += [read_write.addr.eq(row), written[half].eq(read_write.data)]
            if number < self.copies.ports:
                read_only = rows.read_port()
                m.d.comb += [
                    read_only.addr.eq(_row(getattr(self, f"address_{number}"), odd)),
                    read[half].eq(read_only.data),
                ]
        return written, read


def _row(address: Value, odd: int) -> Value:
    """Return the row of the even or odd words: from an odd word on, the even one is in the next row."""
    row = address[IN_PAIR:]
    return row if odd else (row + address[2])[: len(row)]


class DotProduct(Part):
    """The instruction dot: `total` is the register DOT with four products of code and weight added, modulo 2^32.

    A code has the zero point -128, so its value is 0 to 255. `dot` (in the cycle of the command) sets the register to
    `total`; `put` sets it to `second` if `first` is its number.
    """

    def __init__(self) -> None:
        operands = dict.fromkeys(("first", "second"), In(32))
        super().__init__(put=In(1), dot=In(1), **operands, total=Out(32))

    def define(self, m: Module) -> None:
        register = Signal(32, name="DOT")
        products = []
        for lane in range(4):
            value = Signal(8, name=f"value_{lane}")
            product = Signal(signed(17), name=f"product_{lane}")
            m.d.comb += value.eq(self.first.word_select(lane, 8) + 128)
            m.d.comb += product.eq(value * self.second.word_select(lane, 8).as_signed())
            products.append(product)
        m.d.comb += self.total.eq(register + (products[0] + products[1]) + (products[2] + products[3]))
        with m.If(self.dot):
            m.d.sync += register.eq(self.total)
        with m.If(self.put & (self.first == FIELDS["DOT"])):
            m.d.sync += register.eq(self.second)
