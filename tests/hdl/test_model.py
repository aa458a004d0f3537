"""Compiled models: the same component by both engines, its ports, memories and attached DRAM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from tilewright.errors import ConfigError, MachineError
from tilewright.hdl import build
from tilewright.hdl.axi import Bus
from tilewright.hdl.memory import BankedMemory, Tiles
from tilewright.hdl.model import Compiled

ENGINES = build.ENGINES


class Copier(wiring.Component):
    """Reads a burst of four beats from byte 64, writes them, complemented, to byte 128; `done` with the response."""

    def __init__(self) -> None:
        super().__init__({"bus": Out(Bus(64)), "done": Out(1), "beats": Out(8)})

    def elaborate(self, platform: Any) -> Elaboratable:
        m, bus = Module(), self.bus
        step, held, sent = Signal(3), [Signal(64, name=f"held{place}") for place in range(4)], Signal(3)
        m.d.comb += [bus.ar.valid.eq(step == 0), bus.ar.payload.address.eq(64), bus.ar.payload.beats.eq(3)]
        m.d.comb += [bus.aw.valid.eq(step == 2), bus.aw.payload.address.eq(128), bus.aw.payload.beats.eq(3)]
        m.d.comb += [bus.w.valid.eq(step == 3), bus.w.payload.strobes.eq(255), bus.w.payload.last.eq(sent == 3)]
        m.d.comb += [self.done.eq(step == 5), bus.r.ready.eq(1), bus.b.ready.eq(1)]
        with m.Switch(sent):
            for place in range(4):
                with m.Case(place):
                    m.d.comb += bus.w.payload.data.eq(~held[place])
        with m.If(((step == 0) & bus.ar.ready) | ((step == 2) & bus.aw.ready) | ((step == 4) & bus.b.valid)):
            m.d.sync += step.eq(step + 1)
        with m.If((step == 1) & bus.r.valid):
            m.d.sync += [held[place].eq(bus.r.payload.data if place == 3 else held[place + 1]) for place in range(4)]
            m.d.sync += self.beats.eq(self.beats + 1)
            with m.If(bus.r.payload.last):
                m.d.sync += step.eq(2)
        with m.If((step == 3) & bus.w.ready):
            m.d.sync += sent.eq(sent + 1)
            with m.If(sent == 3):
                m.d.sync += step.eq(4)
        return m


@pytest.mark.gxx
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("latency", [1, 7])
def test_attached_memory_answers_after_its_latency(engine: str, latency: int) -> None:
    model = Compiled(Copier(), engine=engine).model()
    memory = np.arange(256, dtype=np.uint8)
    attached = model.attach("bus", memory, latency)
    model.watch("bus__ar__valid", 0)
    model.watch("bus__r__valid", 1)
    model.watch("bus__w__valid", 2)
    model.watch("bus__b__valid", 3)
    model.run_until("done", 1000)
    assert memory[128:160].tolist() == (255 - np.arange(64, 96)).tolist()
    assert memory[:128].tolist() == list(range(128)) and memory[160:].tolist() == list(range(160, 256))
    assert (model["beats"], model.faults(attached)) == (4, 0)
    write = latency + 4 + 1
    expected = [(0, 0), *((1, latency + beat) for beat in range(4))]
    expected += [*((2, write + beat) for beat in range(4)), (3, write + 3 + latency)]
    assert [tuple(event) for event in model.events.tolist()] == expected
    written = model.written(attached)
    assert written.cycle.tolist() == [write + beat for beat in range(4)]
    assert written.address.tolist() == [128, 136, 144, 152]
    assert (written.data == memory[128:160].reshape(4, 8)).all()
    assert written.strobes.all()


@pytest.mark.gxx
@pytest.mark.parametrize("engine", ENGINES)
def test_a_waveform_shows_some_cycles(engine: str, tmp_path: Path) -> None:
    model, path = Compiled(Copier(), engine=engine).model(), tmp_path / "copier.vcd"
    model.attach("bus", np.arange(256, dtype=np.uint8), 1)
    if engine == "verilator":
        with pytest.raises(ConfigError, match="the engine cxxrtl"):
            model.wave(path, 2, 5)
        return
    model.wave(path, 2, 5)
    model.run_until("done", 1000)
    lines = path.read_text().splitlines()
    assert [int(line[1:]) for line in lines if line.startswith("#")] == list(range(4, 12))
    assert any(line.startswith("$var wire 256") or " held3 " in line for line in lines)


@pytest.mark.gxx
@pytest.mark.parametrize("engine", ENGINES)
def test_a_memory_that_stalls_is_late_and_the_same(engine: str) -> None:
    cycles = set()
    for seed in range(8):
        model, memory = Compiled(Copier(), engine=engine).model(), np.arange(256, dtype=np.uint8)
        attached = model.attach("bus", memory, 3, stalls=seed)
        model.run_until("done", 1000)
        assert memory[128:160].tolist() == (255 - np.arange(64, 96)).tolist(), f"seed {seed}"
        assert (model["beats"], model.faults(attached)) == (4, 0)
        cycles.add(model.cycle)
        assert seed == 0 or model.cycle >= min(cycles)
    assert len(cycles) > 3


@pytest.mark.gxx
@pytest.mark.parametrize("engine", ENGINES)
def test_an_access_outside_the_memory_is_a_fault(engine: str) -> None:
    model = Compiled(Copier(), engine=engine).model()
    attached = model.attach("bus", np.zeros(144, np.uint8), 1)
    model.run_until("done", 1000)
    assert model.faults(attached) == 16  # bytes


@pytest.mark.gxx
@pytest.mark.parametrize("engine", ENGINES)
def test_each_model_is_an_instance_of_its_own(engine: str) -> None:
    compiled = Compiled(BankedMemory(Tiles(16, 64, 16), tile_writes=True), engine)
    model, other = compiled.model(), compiled.model()
    model["tile__index"], model["tile__data"], model["tile__en"] = 6, 0xABCD, 1
    model.step()
    for each in (model, other):
        each["tile__en"], each["read__en"], each["read__index"] = 0, 1, 6
        each.step()
    assert (model["read__data"], other["read__data"]) == (0xABCD, 0)
    assert (model.cycle, other.cycle) == (2, 1)


@pytest.mark.gxx
def test_a_second_build_is_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    first = build.library(Copier(), "cxxrtl")
    stamp = first.stat().st_mtime_ns
    assert build.library(Copier(), "cxxrtl") == first
    assert first.stat().st_mtime_ns == stamp
    assert build.library(BankedMemory(Tiles(2, 8, 2)), "cxxrtl") != first


@pytest.mark.gxx
def test_what_is_not_there_is_named() -> None:
    compiled = Compiled(Copier(), engine="cxxrtl")
    model = compiled.model()
    with pytest.raises(ConfigError, match="no port nothing"):
        model["nothing"]
    with pytest.raises(ConfigError, match="no AXI4 ports named axi"):
        model.attach("axi", np.zeros(8, np.uint8), 1)
    with pytest.raises(ConfigError, match="unknown engine 'icarus'"):
        Compiled(Copier(), engine="icarus")
    with pytest.raises(MachineError, match="done is still 0 after 50 cycles"):
        model.run_until("done", 50)  # nothing answers
