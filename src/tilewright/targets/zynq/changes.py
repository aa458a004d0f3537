"""Changes of a Zynq engine that may save cycles, for what-ifs. bench/zynq_whatif.py has more, with costs."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.targets.base import Change
from tilewright.targets.zynq.config import PRESETS, Config

#: A change to a preset; its text also names the keys and values that differ. The clock stays as it is.
PRESET = "the preset fast"
#: The changes, each with the keys to set and whether the network must be compiled again. Sources: zynq/config.py.
CHANGES: tuple[tuple[str, dict[str, int | str], bool], ...] = (
    ("page services without handshake", {"handshake": 0}, False),
    ("stores that are read in all block RAMs at once", {"banked": 1, "ports": 2}, False),
    ("no control states", {"control": "pipelined"}, False),
    ("stores read at once and no control states", {"banked": 1, "ports": 2, "control": "pipelined"}, False),
    ("results written while the next ones are computed", {"write_behind": 1}, False),
    ("two frames per store", {"frames": 2, "weight_bits": 16, "result_bits": 16, "block_bits": 11}, True),
    ("one sweep over the data for the kernels of a weight block", {"oc_blocking": 1}, True),
    ("two products per DSP48", {"outputs": 2, "macs_per_dsp": 2, "fetch": "full"}, True),
    (PRESET, {key: value for key, value in PRESETS["fast"].items() if key != "clock_mhz"}, True),
)


def changes(config: Config) -> Iterator[Change]:
    """Yield changes that only change time, then machines for which a network must be compiled again."""
    if config.axi_bytes < 64:
        width = min(64, 4 * config.axi_bytes)
        yield Change(f"a PS that moves {width} bytes per cycle", {"axi_bytes": width})
    for text, keys, recompile in CHANGES:
        if other := {key: value for key, value in keys.items() if getattr(config, key) != value}:
            named = ", ".join(f"{key}={value}" for key, value in other.items())
            yield Change(f"{text}: {named}" if text == PRESET else text, other, recompile=recompile)
