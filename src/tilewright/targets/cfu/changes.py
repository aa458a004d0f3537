"""Changes of a CFU system that may save cycles, for what-ifs."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.targets.base import Change, TimingModel

from .config import BEYOND, Config

#: Costs that each change of the timing model removes.
FREE = {
    "memory without waits": (
        "word",
        "request",
        "grant",
        "restart",
        "redo",
        "l2_miss",
        "dram_read",
        "dram_row",
        "dram_write",
    ),
    "DRAM without waits": ("dram_read", "dram_row", "dram_write"),
    "results that the next instruction can use": ("load_use", "shift_use", "multiply_use"),
    "branches and jumps without cost": ("taken", "mispredicted", "jump", "jump_register"),
    "CFU instructions that do not wait for loads and stores": ("drain",),
}
#: Keys of the caches, with the largest size of each that is tried, in bytes.
CACHES = {"icache_bytes": 1 << 16, "dcache_bytes": 1 << 16, "l2_bytes": 1 << 24}
TIMES = 4


def changes(config: Config, timing: TimingModel) -> Iterator[Change]:
    """Yield changes that only change time, then machines for which a network must be compiled again."""
    for text, keys in FREE.items():
        if costly := {key: 0 for key in keys if timing.values.get(key, 0)}:
            yield Change(text, timing=costly)
    larger = {key: min(most, TIMES * getattr(config, key)) for key, most in CACHES.items()}
    yield Change(f"caches {TIMES} times as large", larger)
    if config.array < 32 and not config.extensions:
        side = 2 * config.array
        yield Change(f"array of {side} x {side}", {"array": side}, recompile=True)
    known = len(config.extension_names)
    if config.extension_names == BEYOND[:known]:
        for count in sorted({known + 1, len(BEYOND)} - {len(BEYOND) + 1, known}):
            names = ",".join(BEYOND[:count])
            set_ = {"extensions": names, "firmware": "tuned" if config.firmware == "tuned" else "coupled"}
            yield Change(f"CFU with the extensions {names}", set_, recompile=True)
