"""Which configurations and layers the gateware supports, and what it takes that the stores' sizes do not say."""

from __future__ import annotations

from tilewright.errors import ConfigError, MachineError
from tilewright.targets.zynq.config import FACTORS, STORES, Config
from tilewright.targets.zynq.gateware import requantiser
from tilewright.targets.zynq.isa.image import LayerImage

#: Cycles from the one in which a result block is complete until its last result can be read from the store.
DRAIN = requantiser.LATENCY + 1
#: Shortest handshake: DRAIN, and the cycles of the request, the last beat and `done`.
HANDSHAKE = DRAIN + 3
#: Keys that need another engine, with the value that the gateware has.
DOCUMENTED = {
    "control": "states",
    "banked": 0,
    "outputs": 1,
    "macs_per_dsp": 1,
    "frames": 1,
    "oc_blocking": 0,
    "write_behind": 0,
    "fc_batch": 1,
}


def beat_bytes(config: Config) -> int:
    """Return the width of the PS's port in bytes: `axi_bytes` rounded up to a power of two, at least 4."""
    return max(4, 1 << (config.axi_bytes - 1).bit_length())


def require(config: Config) -> None:
    """Check that there is gateware of a configuration. Raises ConfigError that names the first key without gateware."""
    for key, value in DOCUMENTED.items():
        if (other := getattr(config, key)) != value:
            reason = f"there is no gateware for {key}={other}: it needs loaders and stores other than the document's"
            raise ConfigError("zynq gateware", reason, f"set {key}={value}, or use the simulator")
    for store in STORES:
        if config.block_bytes(store) < beat_bytes(config):
            reason = f"a {store} block has {config.block_bytes(store)} bytes, less than one transfer of the PS"
            raise ConfigError("zynq gateware", reason, f"set {store}_bits higher, or axi_bytes lower")
    if config.handshake < HANDSHAKE:
        reason = f"handshake={config.handshake} is too short: results reach their store up to {DRAIN} cycles later"
        raise ConfigError("zynq gateware", reason, f"set handshake={HANDSHAKE} or more")


def require_layer(name: str, image: LayerImage) -> None:
    """Check that the gateware can run a layer that the simulator can. Raises MachineError if it cannot."""
    if image.layer.channels > FACTORS:
        reason = f"has {image.layer.channels} output channels; the gateware holds {FACTORS} requantisation factors"
        raise MachineError(f"layer '{name}'", reason, "split the layer")
    if (image.factor < 0).any():
        raise MachineError(f"layer '{name}'", "has a negative requantisation factor", "negate its weights and bias")
