"""The image memory with ports for the CPU, the array and requantisation; the registers of a layer; dot products."""

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

#: Registers of other parts of the CFU, which increment them.
ELSEWHERE = (Reg.POINTER, Reg.CHANNEL, Reg.FETCH_ROW, Reg.DOT)
ADDRESS = 16
#: Derived values. row_pitch: bytes of an input row. step_x, step_y: bytes from a window to the next window on the right
#: and below. row_jump: bytes from the last byte of a window row to the first byte of the next window row. origin:
#: address of the first window. size: bytes of an output. all_banks: whether an addition may run at full speed.
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
    """The layer registers. In the cycle of the command `put`, register number `first` is set to `second`.

    `layer` is a struct of the registers and the derived products. Products are valid from the second cycle after `put`
    on, which is the first cycle in which the CFU can accept the next command.
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


#: The bytes of a word. Even and odd words are in separate memories, so that two words can be written in a cycle.
WORD_BYTES = 4
ADDRESS = ceil_log2(IMAGE_BYTES)
PAIR = 64  # the bits of two neighbouring words
IN_PAIR = 3  # the bits of a byte index in these words


class ImageMemory(Part):
    """The image memory, 64 KiB. `pointer` is the byte address of the next push or get.

    `put`, `push` and `get` are high in the cycle of their command. `push` writes `first` and `second` as the next two
    words, and ignores the two low bits of the pointer. While `busy`, `push` only advances the pointer. `word` is
    the next word, and `get` advances the pointer by a word. `put` sets the pointer to `second` if `first` is the number
    of the register POINTER.

    The memory has several equal copies, which are written together. Each copy has a read port, and a port for reads and
    writes. Read port i has the byte address `address_i` as input. In the next cycle, `pair_i` has the word at this
    address and the next word; the even word is in the low half. There can be more read ports than copies. The
    additional read ports use the write ports, and work only while `gather` is high.

    While `store` is high, the first `store_count` bytes of `store_data` are written to byte address `store_address` and
    the following bytes. While `fill` is high, `fill_data` is written to the word of byte `fill_address` and the next
    word.
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
        # Rotate the 8 bytes to write, so that they match an even word and an odd word.
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
            # While `gather` is high, the write port of this copy reads for one of the additional read ports.
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
        """Add a copy. Return the pairs of words at the byte address `place` and at the address of the read port."""
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
    """Return the row of the even or odd word in a pair. If the odd word is first, the even word is in the next row."""
    row = address[IN_PAIR:]
    return row if odd else (row + address[2])[: len(row)]


class DotProduct(Part):
    """The instruction dot. `total` is the register DOT plus four products of code and weight, modulo 2^32.

    A code has the zero point -128, so its value is 0 to 255. In the cycle of the command `dot`, DOT is set to `total`.
    `put` sets DOT to `second` if `first` is the number of DOT.
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
