"""Which configurations and layers the gateware supports, and what it takes that the stores' sizes do not say."""

from __future__ import annotations

from tilewright.errors import ConfigError, MachineError
from tilewright.targets.zynq.config import FACTORS, STORES, Config
from tilewright.targets.zynq.gateware import requantiser, results, sums
from tilewright.targets.zynq.gateware.states import late
from tilewright.targets.zynq.isa.image import LayerImage

#: Keys that need another engine, each with the value that the gateware has, and what the other values need.
BATCH = {"fc_batch": (1, "an accumulator for each sample")}
DOCUMENTED = {
    "banked": (0, "a window buffer, because the ports of a store do not give all operands of an iteration (window=1)"),
    "outputs": (1, "a compute unit for several sums, and a window buffer (window=1)"),
    "macs_per_dsp": (1, "a compute unit for several sums, and a window buffer (window=1)"),
    **BATCH,
}
#: Widest port of the PS in bytes with `window`: a line of weights consists of whole beats.
WIDEST = 16


def drain(config: Config) -> int:
    """Return after how many cycles a complete result block can be read: its last result is then in the store."""
    if config.window:
        return sums.SUMMED + results.group_latency(config)
    return requantiser.LATENCY + late(config) + 1


def beat_bytes(config: Config) -> int:
    """Return the width of the PS's port in bytes: `axi_bytes` rounded up to a power of two, at least 4."""
    return max(4, 1 << (config.axi_bytes - 1).bit_length())


def require(config: Config) -> None:
    """Check that there is gateware of a configuration. Raises ConfigError that names the first key without gateware."""
    for key, (value, needed) in (BATCH if config.window else DOCUMENTED).items():
        if (other := getattr(config, key)) != value:
            raise ConfigError(
                "zynq gateware",
                f"{key}={other} has no gateware: it needs {needed}",
                f"set {key}={value}, or use the simulator (docs/gateware-zynq.md says why)",
            )
    if config.window and beat_bytes(config) > WIDEST:
        reason = (
            f"axi_bytes={config.axi_bytes} has no gateware with window=1: a line of weights is nine beats of {WIDEST}"
        )
        raise ConfigError("zynq gateware", reason, f"set axi_bytes={WIDEST} or less")
    for store in STORES:
        if config.block_bytes(store) < beat_bytes(config):
            reason = f"a {store} block has {config.block_bytes(store)} bytes, less than one transfer of the PS"
            raise ConfigError("zynq gateware", reason, f"set {store}_bits higher, or axi_bytes lower")
    least = drain(config) + 3  # and the cycles of the request, the last beat and `done`
    if config.handshake < least:
        reason = f"handshake={config.handshake} is too short: results reach their store up to {least} cycles later"
        raise ConfigError("zynq gateware", reason, f"set handshake={least} or more")


def require_layer(name: str, image: LayerImage) -> None:
    """Check that the gateware can run a layer that the simulator can. Raises MachineError if it cannot."""
    if image.layer.channels > FACTORS:
        reason = f"has {image.layer.channels} output channels; the gateware holds {FACTORS} requantisation factors"
        raise MachineError(f"layer '{name}'", reason, "split the layer")
    if (image.factor < 0).any():
        raise MachineError(f"layer '{name}'", "has a negative requantisation factor", "negate its weights and bias")
    if image.layer.config.window and image.layer.channels:
        for operand in ("x", "w"):
            low, high = (-128, 127) if image.layer[f"{operand}_signed"] else (0, 255)
            if not low <= (zero := image.layer[f"z{operand}"]) <= high:
                reason = f"has z{operand}={zero}; with window=1 the gateware takes zero points within {low}..{high}"
                raise MachineError(f"layer '{name}'", reason, "use a zero point that is a code")
