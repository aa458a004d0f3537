"""The named variants of the firmware. Most of them reproduce a step of the document (see cfu/config.py).

The document improves its firmware in steps, and measures ResNet-8 after each step. A variant is such a step, or an
alternative that the document discusses ("aside"), or an addition of this project.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tilewright.errors import ConfigError, one_of
from tilewright.targets.cfu.config import Config

#: Configuration keys that affect the kernels on the array. Kernels that use extensions need the published values.
ARRAY_KEYS = ("array", "buffer_rows", "transfer", "readout", "start", "srdhm")


@dataclass(frozen=True)
class Variant:
    """A variant of the firmware: a C header in `firmware/variants`, and the macros for its compilation."""

    name: str
    about: str
    header: str
    macros: Mapping[str, int | str] = field(default_factory=dict)
    measured: float | None = None  # for a step: the document's time of ResNet-8 in microseconds
    compared_with: str = ""  # for an alternative: the variant with which the document compares it
    extensions: tuple[str, ...] = ()  # the extensions that the machine must have

    @property
    def tuned(self) -> bool:
        return bool(self.macros.get("TUNED"))

    @property
    def kind(self) -> Literal["step", "aside", ""]:
        """The role of the variant in the document; "" if it is not in the document."""
        return "step" if self.measured else "aside" if self.compared_with else ""


def _post(fully_connected: str) -> dict[str, int | str]:
    return {"POST": 1, "FULLY_CONNECTED": fully_connected}


POST, UNROLLED, ON_ARRAY, BY_DOT = map(_post, ("REFERENCE", "UNROLLED", "ON_ARRAY", "BY_DOT"))
TUNED = "coupled, fully connected layers on the array, softmax by instructions, no copies, records read ahead"
DOT = "published, fully connected by four products per instruction (extension dot)"
SHIFTS = "published, codes packed into words by shifts instead of byte arrays"
STORED = "published, codes packed into words by byte arrays that stay in memory"
SMALL_TILES = {**UNROLLED, "TILE_M": 128, "TILE_N": 128, "TILE_K": 512}
_ALL = (
    Variant("baseline", "reference kernels on plain RV32IM", "reference", measured=4_044_074.545),
    Variant("software", "one specialised kernel per convolution, on plain RV32IM", "software", {}, 1_428_413.2),
    Variant("explicit", "the array, im2col in main memory", "explicit", {"IN_BUFFER": 0}, 678_492.32),
    Variant("buffered", "partial sums stay in the array's buffer", "explicit", {"IN_BUFFER": 1}, 669_268.155),
    Variant("implicit", "im2col by address", "implicit", {**POST, "POST": 0}, 440_558.235),
    Variant("post", "requantisation by instructions", "implicit", POST, 407_715.35),
    Variant("published", "fully connected unrolled by 8: the document's last step", "implicit", UNROLLED, 406_357.93),
    *(
        Variant(
            name,
            f"matrix product in software, im2col {where}",
            "matrix",
            {"EXPLICIT": explicit},
            compared_with=compared,
        )
        for name, where, explicit, compared in (
            ("software_im2col", "in main memory", 1, "software"),
            ("software_implicit", "by address", 0, "software_im2col"),
        )
    ),
    Variant("tiles_128_512", "published, in tiles of 128x128x512", "implicit", SMALL_TILES, compared_with="published"),
    Variant("dense_array", "published, fully connected on the array", "implicit", ON_ARRAY, compared_with="published"),
    Variant("shifts", SHIFTS, "implicit", {**UNROLLED, "PACK_BITS": 1}, compared_with="published"),
    Variant("stored_bytes", STORED, "implicit", {**UNROLLED, "PACK_IN_MEMORY": 1}, compared_with="shifts"),
    Variant("dense_dot", DOT, "implicit", BY_DOT, compared_with="published", extensions=("dot",)),
    Variant("coupled", "operators that the extensions support, on the CFU's own memory", "coupled", UNROLLED),
    Variant("tuned", TUNED, "coupled", {**UNROLLED, "TUNED": 1}),
    Variant("general", "every convolution without groups on the array, by one kernel", "array"),
)
VARIANTS = {variant.name: variant for variant in _ALL}


def variant(name: str) -> Variant:
    """Return the firmware variant called `name`. Raises ConfigError, with a list of all names, for unknown names."""
    if name not in VARIANTS:
        raise ConfigError("firmware", f"there is no variant '{name}'", one_of(name, VARIANTS))
    return VARIANTS[name]


def check_machine(chosen: Variant, config: Config) -> None:
    """Check that a machine can run a variant. Raises ConfigError if array, buffers or extensions do not fit."""
    published = Config()
    if chosen.header == "coupled" and any(getattr(config, key) != getattr(published, key) for key in ARRAY_KEYS):
        reason = f"firmware '{chosen.name}' needs {', '.join(ARRAY_KEYS)} as in the preset 'published'"
        raise ConfigError("firmware", reason, "choose firmware=published, or do not set these keys")
    # A variant may have a fixed size of tiles. Other variants compute the size from the buffers (`firmware.tiles`).
    rows = int(chosen.macros.get("TILE_M", 0)) * int(chosen.macros.get("TILE_K", 0)) // config.array
    if rows > config.buffer_rows:
        reason = f"firmware '{chosen.name}' needs buffer_rows of at least {rows}; it is {config.buffer_rows}"
        raise ConfigError("firmware", reason, "choose firmware=published, whose tiles follow the buffers")
    missing = [name for name in chosen.extensions if name not in config.extension_names]
    if missing:
        reason = f"firmware '{chosen.name}' needs the extension {', '.join(missing)}"
        raise ConfigError("firmware", reason, f"set extensions={','.join((*config.extension_names, *missing))}")
