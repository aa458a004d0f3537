"""What a launch of VTA holds: instructions, DRAM, and the addresses in the base registers."""

from __future__ import annotations

from tilewright.program.launch_image import LaunchImage
from tilewright.program.program import Launch
from tilewright.targets.vta.gateware.registers import REGIONS
from tilewright.targets.vta.isa.fields import INSN_BYTES


def image_of(launch: Launch) -> LaunchImage:
    """What a launch holds, which may come from a file. Raises ProgramError."""
    return LaunchImage.of(launch, INSN_BYTES, REGIONS)
