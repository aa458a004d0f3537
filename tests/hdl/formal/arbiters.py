"""Arbiters: one grant at a time, in the stated order, and every request is served.

A fixed priority serves a request as soon as no client before it asks. So no starvation follows where these clients
pause; for the read bus, this is what VTA's fetch and compute units do (their buffers fill, their LOADs end).
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Mux, Value

from tests.hdl.formal.bench import Bench, Proof, implies
from tests.hdl.formal.engine import induction
from tests.hdl.formal.queues import marked, stable
from tilewright.hdl.axi import ReadMaster
from tilewright.targets.zynq.config import STORES, Config
from tilewright.targets.zynq.gateware.stores import ORDER, Ahead, Paging

CLIENTS = 3
IN_FLIGHT = 4
#: In the proof that requests are served: cycles until the bus accepts a burst, and until the next burst ends.
PATIENCE = 4


def ones(bits: Any) -> Value:
    return sum((bit for bit in bits), start=bits[0] & 0)


def read_master() -> Bench:
    """Grants, the order of owners, and the data of each client."""
    dut = ReadMaster(16, CLIENTS, IN_FLIGHT)
    b = Bench(dut)
    owners = b.component("owners")
    clients = [getattr(dut, f"client{number}") for number in range(CLIENTS)]
    asks = Cat(client.valid for client in clients)
    ready = Cat(client.ready for client in clients)
    grants = asks & ready
    ar, r = dut.bus.ar, dut.bus.r
    b.claim("one_grant", (grants & (grants - 1)[:CLIENTS]) == 0)
    for number in range(1, CLIENTS):
        b.claim(f"priority{number}", implies(grants[number], asks[:number] == 0))
    free = (~ar.valid | ar.ready) & (owners.level != IN_FLIGHT)
    b.claim("no_needless_wait", implies(free & asks.any(), grants.any()))
    b.claim("room", implies(grants.any(), owners.i.valid & owners.i.ready))
    stable(b, "ar", ar.valid, ar.ready, Value.cast(ar.payload))
    for number, client in enumerate(clients):
        granted = b.past(grants[number])
        b.claim(
            f"burst{number}",
            implies(granted, ar.valid & (Value.cast(ar.payload) == b.past(Value.cast(client.payload)))),
        )
    # Beats come for bursts that the bus has accepted. The oldest burst is that of the queue's first entry.
    open_ = b.register("open", 4)
    ends = r.valid & r.payload.last
    b.m.d.sync += open_.eq(open_ + (ar.valid & ar.ready) - ends)
    b.assume(implies(r.valid, open_ != 0))
    beat, last = b.inside("beat"), b.inside("last")
    b.claim("arrived", (beat == b.past(r.valid)) & implies(beat, last == b.past(r.payload.last)))
    b.claim("counted", (owners.level == open_ + ar.valid + (beat & last)) & (owners.level <= IN_FLIGHT))
    is_there, ahead, owner = marked(b, "owners.", owners, b.free("mark"))
    b.claim("valid", dut.valid == Mux(beat, 1 << owners.o.payload, 0))
    b.claim("data", implies(beat, (dut.data == b.past(r.payload.data)) & owners.o.valid))
    b.claim("to_owner", implies(is_there & (ahead == 0) & beat, dut.valid == 1 << owner))
    for place in range(IN_FLIGHT):
        b.claim(f"client_in_{place}", b.stored("owners.memory", place) < CLIENTS)
    return b


def read_master_serves() -> Bench:
    """A lasting request of the last client is granted once the others pause, if the bus keeps its limits."""
    dut = ReadMaster(16, CLIENTS, IN_FLIGHT)
    b = Bench(dut)
    owners = b.component("owners")
    ar, r = dut.bus.ar, dut.bus.r
    open_ = b.register("open", 4)
    ends = r.valid & r.payload.last
    b.m.d.sync += open_.eq(open_ + (ar.valid & ar.ready) - ends)
    b.assume(implies(r.valid, open_ != 0))
    beat, last = b.inside("beat"), b.inside("last")
    b.claim("counted", (owners.level == open_ + ar.valid + (beat & last)) & (owners.level <= IN_FLIGHT))
    stall, silence, wait = (b.register(name, 6) for name in ("stall", "silence", "wait"))
    b.m.d.sync += stall.eq(Mux(ar.valid & ~ar.ready, stall + 1, 0))
    b.m.d.sync += silence.eq(Mux((open_ != 0) & ~ends, silence + 1, 0))
    b.assume(implies(ar.valid & (stall == PATIENCE - 1), ar.ready))
    b.assume(implies((open_ != 0) & (silence == PATIENCE - 1), ends))
    b.claim("limits", (stall < PATIENCE) & (silence < PATIENCE))
    client = getattr(dut, f"client{CLIENTS - 1}")
    others = Cat(getattr(dut, f"client{number}").valid for number in range(CLIENTS - 1)).any()
    waits = client.valid & ~client.ready & ~others
    b.m.d.sync += wait.eq(Mux(waits, wait + 1, 0))
    b.claim("served", wait <= 2 * PATIENCE + 1)
    return b


def paging() -> Bench:
    """One page at a time; each miss is served, after at most one page of each store before it in the order."""
    config = Config()
    dut = Paging(config)
    b = Bench(dut)
    misses = {name: getattr(dut, name).miss for name in STORES}
    wanted = Cat(misses[name] for name in STORES)
    served = Cat(getattr(dut, name).done for name in STORES)
    # While the engine stands still, a store misses until its page is there, and none begins to miss.
    for number, name in enumerate(STORES):
        goes_on = Mux(b.past(served[number]), 0, b.past(misses[name]))
        stood = b.past(dut.stalls)
        b.assume(implies(stood, misses[name] == goes_on))
    b.assume(implies(dut.done, dut.waiting))
    b.claim("one_page", (served & (served - 1)[: len(served)]) == 0)
    b.claim("stalls", dut.stalls == (dut.waiting | wanted.any()))
    b.claim("served", served == Mux(dut.waiting & dut.done, 1 << dut.store, 0))
    chosen: Any = 0
    for name in reversed(ORDER):
        chosen = Mux(misses[name], STORES.index(name), chosen)
    begins = wanted.any() & ~dut.waiting & ~dut.hold
    blocks = [getattr(dut, name).block for name in STORES]
    block: Any = 0
    for name in reversed(ORDER):
        block = Mux(misses[name], blocks[STORES.index(name)], block)
    asked = (
        (dut.store == b.past(chosen))
        & (dut.block == b.past(block))
        & (dut.write == (dut.store == STORES.index("result")))
    )
    b.claim("begins", implies(b.past(begins), dut.waiting & asked))
    b.claim("lasts", implies(b.past(dut.waiting & ~dut.done), dut.waiting & (dut.store == b.past(dut.store))))
    b.claim("ends", implies(b.past(dut.waiting & dut.done), ~dut.waiting))
    b.claim("asks_for_misses", implies(dut.waiting, wanted.bit_select(dut.store, 1)))
    for name in ORDER:
        pages = b.register(f"pages_{name}", 4)
        b.m.d.sync += pages.eq(Mux(misses[name] & ~served[STORES.index(name)], pages + served.any(), 0))
        earlier = ones([misses[other] for other in ORDER if other != name])
        b.claim(f"no_starvation_{name}", pages + earlier <= len(STORES) - 1)
        b.claim(f"count_{name}", pages < len(STORES))
    return b


def ahead() -> Bench:
    """The PS chooses the store; only that store gets `done`, and the engine stands while any store misses."""
    config = Config()
    dut = Ahead(config)
    b = Bench(dut)
    done = Cat(getattr(dut, name).done for name in STORES)
    ready = Cat(getattr(dut, name).ready for name in STORES)
    b.claim("done", done == Mux(dut.done, 1 << dut.job, 0))
    b.claim("ready", dut.ready == ready.bit_select(dut.job, 1))
    b.claim("stalls", dut.stalls == Cat(getattr(dut, name).miss for name in STORES).any())
    return b


PROOFS = [
    Proof("ReadMaster", "one grant, priority, owner of each beat, stable", read_master, induction, 1),
    Proof(
        "ReadMaster: waits",
        "granted while the clients before pause",
        read_master_serves,
        induction,
        2 * PATIENCE + 3,
    ),
    Proof("zynq Paging", "one page, order of misses, no starvation", paging, induction, 1),
    Proof("zynq Ahead", "the chosen store", ahead, induction, 1),
]
