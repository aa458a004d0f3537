"""FIFOs and token queues: nothing is lost, doubled or reordered, nothing overflows, offers are stable.

The order of a FIFO follows from any one element that is marked when it enters: with `ahead` elements before it, it
leaves `ahead` reads later, and is the same.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from amaranth.hdl import Cat, Const, Mux, Value

from tests.hdl.formal.bench import Bench, Proof, implies
from tests.hdl.formal.engine import induction
from tilewright.hdl.axi import AxiLiteRegisters, WriteMaster
from tilewright.hdl.memory import StreamFifo, TokenQueue
from tilewright.targets.vta.config import PRESETS
from tilewright.targets.vta.gateware.units import INSN_BITS, Dispatcher, Fetch, fields

#: In StreamFifo: the places of the first element (a register without a name), and of the next one to come.
POINTERS = ("$signal", "last")


def stable(b: Bench, name: str, valid: Any, ready: Any, payload: Any) -> None:
    """Claim that an offer which is not taken is there in the next cycle."""
    waits = b.past(valid & ~ready)
    b.claim(f"{name}_stable", implies(waits, valid & (payload == b.past(payload))))


def marked(b: Bench, path: str, fifo: StreamFifo, mark: Any) -> tuple[Any, Any, Any]:
    """Follow the element that enters a FIFO in a cycle with `mark`. Return (is it inside, elements ahead, element).

    What is claimed here makes the claims about the FIFO inductive as well.
    """
    depth = fifo.depth
    first, last = (b.inside(path + name) if depth > 1 else Const(0, 1) for name in POINTERS)
    takes, gives = fifo.i.valid & fifo.i.ready, fifo.o.valid & fifo.o.ready
    is_there, ahead = b.register(f"{path}there", 1), b.register(f"{path}ahead", range(depth + 1))
    element = b.register(f"{path}element", Value.cast(fifo.i.payload).shape())
    enters = takes & mark & ~is_there
    with b.m.If(enters):
        b.m.d.sync += [is_there.eq(1), ahead.eq(fifo.level - gives), element.eq(Value.cast(fifo.i.payload))]
    with b.m.Elif(is_there & gives):
        b.m.d.sync += [ahead.eq(ahead - 1), is_there.eq(ahead != 0)]
    place = _modulo(first + ahead, depth)
    b.claim(f"{path}pointers", (first < depth) & (last < depth) & (last == _modulo(first + fifo.level, depth)))
    b.claim(f"{path}stored", implies(is_there, b.stored(f"{path}memory", place) == element))
    head = Value.cast(fifo.o.payload)
    b.claim(f"{path}head", implies(fifo.level != 0, b.stored(f"{path}memory", first) == head))
    b.claim(f"{path}inside", implies(is_there, ahead < fifo.level))
    b.claim(f"{path}order", implies(is_there & (ahead == 0), fifo.o.valid & (head == element)))
    return is_there, ahead, element


def _modulo(value: Any, depth: int) -> Value:
    return Mux(value >= depth, value - depth, value)


def stream_fifo(depth: int, bits: int) -> Bench:
    dut = StreamFifo(bits, depth)
    b = Bench(dut)
    marked(b, "", dut, b.free("mark"))
    count = b.register("count", range(depth + 2))
    takes, gives = dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready
    b.m.d.sync += count.eq(count + takes - gives)
    b.claim("count", (dut.level == count) & (count <= depth))
    b.claim("valid", dut.o.valid == (count != 0))
    b.claim("ready", dut.i.ready == ((count != depth) | gives))
    stable(b, "output", dut.o.valid, dut.o.ready, dut.o.payload)
    return b


def token_queue(depth: int) -> Bench:
    """A producer reserves places and pushes later, a consumer pops: each only where it may."""
    dut = TokenQueue(depth)
    b = Bench(dut)
    tokens, pledged = b.register("present", range(depth + 2)), b.register("pledged", range(depth + 2))
    b.m.d.sync += [tokens.eq(tokens + dut.push - dut.pop), pledged.eq(pledged + dut.reserve - dut.push)]
    b.assume(implies(dut.reserve, dut.room) & implies(dut.pop, dut.available))
    b.assume(implies(dut.push, (pledged != 0) | dut.reserve))
    b.claim("tokens", dut.available == (tokens != 0))
    b.claim("places", dut.room == (tokens + pledged < depth))
    b.claim("no_overflow", tokens + pledged <= depth)
    b.claim("counted", (b.inside("tokens") == tokens) & (b.inside("places") + tokens + pledged == depth))
    return b


def dispatcher(sides: tuple[bool, bool]) -> Bench:
    """Each instruction starts once, pops what it needs, and reserves the places of its tokens when it ends."""
    config = PRESETS["pynq"]
    dut = Dispatcher(config, sides)
    b = Bench(dut)
    dut_insn = dut.insn
    started, runs = b.register("started", INSN_BITS), b.register("runs", 1)
    coming, now = (fields(word, config.formats.plain) for word in (dut_insn.payload, started))
    needs = Cat(coming["pop_prev"] & sides[0], coming["pop_next"] & sides[1])
    gives = Cat(now["push_prev"] & sides[0], now["push_next"] & sides[1])
    with b.m.If(dut.start):
        b.m.d.sync += [started.eq(dut_insn.payload), runs.eq(1)]
    with b.m.Elif(dut.ends):
        b.m.d.sync += runs.eq(0)
    b.claim("taken_once", dut_insn.ready == dut.start)
    b.claim("start_is_offered", implies(dut.start, dut_insn.valid & (~runs | dut.ends)))
    b.claim("pops_present", (dut.pop & ~dut.available) == 0)
    b.claim("pops_needs", dut.pop == Mux(dut.start, needs, 0))
    b.claim("reserves_room", (dut.reserve & ~dut.room) == 0)
    b.claim("reserves_gives", dut.reserve == Mux(dut.ends, gives, 0))
    b.claim("ends_what_runs", implies(dut.ends, runs & dut.finished & dut.may_end))
    b.claim("current", implies(runs, dut.current == started) & (b.inside("held") == runs))
    may = dut_insn.valid & (~runs | dut.ends) & ((needs & ~dut.available) == 0)
    b.claim("no_needless_wait", implies(may, dut.start))
    finished = runs & dut.finished & dut.may_end & ((gives & ~dut.room) == 0)
    b.claim("no_needless_hold", implies(finished, dut.ends))
    return b


def fetch() -> Bench:
    """The buffer has room for each beat; instructions leave in order, as many as were asked for."""
    dut = Fetch(PRESETS["pynq"])
    b = Bench(dut)
    buffer = b.component("buffer")
    burst = dut.client.payload
    takes = dut.client.valid & dut.client.ready
    left, here = b.inside("left"), b.inside("here")
    b.assume(implies(dut.launch, here == 0))
    beats = b.register("open", 16)  # that were requested and have not come
    b.m.d.sync += beats.eq(beats + Mux(takes, burst.beats + 1, 0) - dut.valid)
    b.assume(implies(dut.valid, beats != 0))
    part = b.inside("part")
    room = buffer.depth
    b.claim("no_overflow", implies(buffer.i.valid, buffer.i.ready))
    b.claim("reserved", (b.inside("reserved") << 1) == (buffer.level << 1) + beats + part)
    b.claim("room", (b.inside("reserved") <= room) & (beats <= 2 * room))
    b.claim("counted", here == left + b.inside("reserved"))
    b.claim("pointers", buffer.level <= room)
    queues = [getattr(dut, name) for name in dut.config.pipeline.units]
    valid = Cat(queue.valid for queue in queues)
    b.claim("one_unit", (valid & (valid - 1)[: len(queues)]) == 0)
    b.claim("routed", valid.any() == (buffer.level != 0))
    sent = (valid & Cat(queue.ready for queue in queues)).any()
    b.claim("sent", implies(sent, here != 0))
    for name, queue in zip(dut.config.pipeline.units, queues, strict=True):
        b.claim(f"insn_{name}", implies(queue.valid, queue.payload == buffer.o.payload))
    return b


def write_master() -> Bench:
    """Bursts are forwarded in order, one at a time; the counters count what passed."""
    dut = WriteMaster(64)
    b = Bench(dut)
    aw = dut.bus.aw
    stable(b, "aw", aw.valid, aw.ready, Value.cast(aw.payload))
    takes = dut.client.valid & dut.client.ready
    held, burst = b.register("held", 1), b.register("burst", len(Value.cast(aw.payload)))
    with b.m.If(takes):
        b.m.d.sync += [held.eq(1), burst.eq(Value.cast(dut.client.payload))]
    with b.m.Elif(aw.ready):
        b.m.d.sync += held.eq(0)
    b.claim("none_lost", implies(takes, ~held | aw.ready))
    b.claim("forwarded", (aw.valid == held) & implies(held, Value.cast(aw.payload) == burst))
    b.claim("granted", dut.granted == b.past((dut.granted + takes)[:16]))
    b.claim("ended", dut.ended == b.past((dut.ended + (dut.bus.b.valid & dut.bus.b.ready))[:16]))
    w, beats = dut.bus.w, dut.beats
    b.claim("beats", (w.valid == beats.valid) & (beats.ready == w.ready))
    b.claim("data", Value.cast(w.payload) == Value.cast(beats.payload))
    return b


def axi_lite_registers() -> Bench:
    """Each write and each read gets one answer. A register has the strobed bytes that were written last."""
    dut = AxiLiteRegisters({0: "control", 8: "mode"}, {4: "status"})
    b = Bench(dut)
    bus = dut.bus
    stable(b, "b", bus.b.valid, bus.b.ready, bus.b.payload)
    stable(b, "r", bus.r.valid, bus.r.ready, bus.r.payload)
    writes, reads = bus.aw.valid & bus.aw.ready, bus.ar.valid & bus.ar.ready
    b.claim("together", writes == (bus.w.valid & bus.w.ready))
    for name, begins, answers in (("write", writes, bus.b), ("read", reads, bus.r)):
        open_ = b.register(f"{name}_open", 2)
        b.m.d.sync += open_.eq(open_ + begins - (answers.valid & answers.ready))
        b.claim(f"{name}_answers", (answers.valid == (open_ == 1)) & (open_ <= 1))
    word = bus.w.payload
    for offset, port, strobe in ((0, dut.control, dut.control_strobe), (8, dut.mode, dut.mode_strobe)):
        expected = b.register(f"expected{offset}", 32)
        mine = writes & (bus.aw.payload >> 2 == offset >> 2)
        with b.m.If(mine):
            for byte in range(4):
                part = slice(8 * byte, 8 * byte + 8)
                with b.m.If(word.strobes[byte]):
                    b.m.d.sync += expected[part].eq(word.data[part])
        b.claim(f"register{offset}", port == expected)
        b.claim(f"strobe{offset}", strobe == b.past(mine))
    address, status, control, mode = (
        b.past(value) for value in (bus.ar.payload[2:], dut.status, dut.control, dut.mode)
    )
    answer = Mux(address == 0, control, Mux(address == 1, status, Mux(address == 2, mode, 0)))
    b.claim("answer", implies(b.past(reads), bus.r.payload == answer))
    b.claim("memory", dut.memory_write == (writes & bus.aw.payload[11]))
    at = implies(dut.memory_write, (dut.memory_address == bus.aw.payload[2:11]) & (dut.memory_data == word.data))
    b.claim("memory_word", at)
    return b


TOKENS = "starts once, pops present tokens, reserves free places"
FIFO = "order, no loss, no overflow, stable"
PROOFS = [
    *(
        Proof(f"StreamFifo of {depth} x {bits}", FIFO, partial(stream_fifo, depth, bits), induction, 1)
        for depth, bits in ((1, 8), (2, 8), (3, 8), (16, 2), (18, 200), (512, 128))
    ),
    *(
        Proof(f"TokenQueue of {depth}", "no loss, no overflow", partial(token_queue, depth), induction, 1)
        for depth in (3, 256, 1024)
    ),
    Proof("vta Fetch", "no overflow of the buffer, one unit, counts", fetch, induction, 1),
    Proof("vta Dispatcher", TOKENS, partial(dispatcher, (True, True)), induction, 1),
    Proof("WriteMaster", "order, no loss, counts", write_master, induction, 1),
    Proof("AxiLiteRegisters", "one answer each, registers, stable", axi_lite_registers, induction, 1),
]
