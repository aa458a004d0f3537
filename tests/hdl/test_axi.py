"""The bus masters and the control registers."""

from __future__ import annotations

from typing import Any

from tests.hdl.simulation import simulate
from tilewright.hdl.axi import AxiLiteRegisters, ReadMaster, WriteMaster


def test_a_command_leaves_the_cycle_after_its_grant_and_data_arrive_one_after_the_bus() -> None:
    master = ReadMaster(64, 2, in_flight=4)
    bus = master.bus

    async def bench(ctx: Any) -> None:
        ctx.set(bus.ar.ready, 1)
        ctx.set(master.client1.valid, 1)
        ctx.set(master.client1.payload, {"address": 64, "beats": 0})
        assert (ctx.get(master.client1.ready), ctx.get(bus.ar.valid)) == (1, 0)
        await ctx.tick()
        ctx.set(master.client1.valid, 0)
        assert (ctx.get(bus.ar.valid), ctx.get(bus.ar.payload.address)) == (1, 64)
        await ctx.tick()
        assert not ctx.get(bus.ar.valid)
        ctx.set(bus.r.valid, 1)
        ctx.set(bus.r.payload, {"data": 5, "last": 1})
        assert not ctx.get(master.valid)
        await ctx.tick()
        ctx.set(bus.r.valid, 0)
        assert (ctx.get(master.valid), ctx.get(master.data)) == (0b10, 5)

    simulate(master, bench)


def test_the_lowest_client_goes_first_one_grant_a_cycle() -> None:
    master = ReadMaster(64, 3, in_flight=4)
    clients = [getattr(master, f"client{number}") for number in range(3)]

    async def bench(ctx: Any) -> None:
        ctx.set(master.bus.ar.ready, 1)
        for number in (1, 2):
            ctx.set(clients[number].valid, 1)
        assert [ctx.get(client.ready) for client in clients] == [1, 1, 0]
        await ctx.tick()
        ctx.set(clients[1].valid, 0)
        assert ctx.get(clients[2].ready)
        ctx.set(master.bus.ar.ready, 0)  # the command before waits: no grant
        assert not ctx.get(clients[2].ready)

    simulate(master, bench)


def test_a_read_in_flight_makes_room_the_cycle_after_its_last_beat() -> None:
    master = ReadMaster(64, 1, in_flight=2)
    client, bus = master.client0, master.bus

    async def bench(ctx: Any) -> None:
        ctx.set(bus.ar.ready, 1)
        ctx.set(client.valid, 1)
        await ctx.tick().repeat(2)
        assert not ctx.get(client.ready)
        ctx.set(bus.r.valid, 1)
        ctx.set(bus.r.payload, {"data": 0, "last": 1})
        await ctx.tick()
        ctx.set(bus.r.valid, 0)
        assert (ctx.get(master.valid), ctx.get(client.ready)) == (1, 0)  # the cycle of the last beat
        await ctx.tick()
        assert ctx.get(client.ready)

    simulate(master, bench)


def test_write_commands_are_counted_when_granted_and_when_answered() -> None:
    master = WriteMaster(64)
    bus = master.bus

    async def bench(ctx: Any) -> None:
        ctx.set(bus.aw.ready, 1)
        ctx.set(master.client.valid, 1)
        await ctx.tick().repeat(3)
        ctx.set(master.client.valid, 0)
        assert (ctx.get(master.granted), ctx.get(master.ended), ctx.get(bus.aw.valid)) == (3, 0, 1)
        ctx.set(bus.b.valid, 1)
        await ctx.tick().repeat(2)
        assert (ctx.get(master.granted), ctx.get(master.ended), ctx.get(bus.aw.valid)) == (3, 2, 0)

    simulate(master, bench)


async def write(ctx: Any, bus: Any, address: int, value: int, strobes: int = 15) -> None:
    """Address a cycle before the data; ends in the cycle of the response, before it is taken."""
    ctx.set(bus.aw.valid, 1)
    ctx.set(bus.aw.payload, address)
    ctx.set(bus.b.ready, 1)
    await ctx.tick()
    assert not ctx.get(bus.b.valid)
    ctx.set(bus.w.valid, 1)
    ctx.set(bus.w.payload, {"data": value, "strobes": strobes})
    assert ctx.get(bus.aw.ready) and ctx.get(bus.w.ready)
    await ctx.tick()
    ctx.set(bus.aw.valid, 0)
    ctx.set(bus.w.valid, 0)
    assert ctx.get(bus.b.valid)


async def read(ctx: Any, bus: Any, address: int) -> int:
    ctx.set(bus.ar.valid, 1)
    ctx.set(bus.ar.payload, address)
    ctx.set(bus.r.ready, 1)
    await ctx.tick()
    ctx.set(bus.ar.valid, 0)
    assert ctx.get(bus.r.valid)
    value: int = ctx.get(bus.r.payload)
    await ctx.tick()
    assert not ctx.get(bus.r.valid)
    return value


def test_registers_are_written_by_bytes_and_read_back() -> None:
    registers = AxiLiteRegisters({0: "go", 8: "base"}, {4: "status"})
    ports: Any = registers

    async def bench(ctx: Any) -> None:
        ctx.set(ports.status, 99)
        await write(ctx, registers.bus, 8, 0x11223344)
        assert (ctx.get(ports.base), ctx.get(ports.base_strobe), ctx.get(ports.go_strobe)) == (0x11223344, 1, 0)
        await ctx.tick()
        assert not ctx.get(ports.base_strobe)
        await write(ctx, registers.bus, 8, 0xAABBCCDD, strobes=0b0101)
        await ctx.tick()
        assert [await read(ctx, registers.bus, at) for at in (8, 4, 0, 12)] == [0x11BB33DD, 99, 0, 0]

    simulate(registers, bench)
