"""What of a CFU can be built as gateware, and whether it fits the document's board."""

from __future__ import annotations

from tilewright.errors import ConfigError
from tilewright.targets.cfu.config import Config


def require(config: Config) -> None:
    """Check that gateware can be built for the CFU. Raises ConfigError if it cannot."""
    if config.extensions:
        reason = f"there is no gateware of the extensions ({config.extensions}); only the simulator has them"
        raise ConfigError("CFU gateware", reason, "leave out the extensions, or choose the preset published")
