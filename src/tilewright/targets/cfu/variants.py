"""The firmware's named variants: which kernels are in it, and the document's step that each is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tilewright.errors import ConfigError

from .config import Config

#: What the kernels on the array are made for; those of the extensions know the published values only.
ARRAY_KEYS = ("array", "buffer_rows", "transfer", "readout", "start", "srdhm")


@dataclass(frozen=True)
class Variant:
    """A header of `firmware/variants` and the macros that it is compiled with.

    `document_microseconds`: what the document measured on ResNet-8, where this is one of its steps.
    """

    name: str
    about: str
    header: str
    macros: Mapping[str, int | str] = field(default_factory=dict)
    tile_values: int = 0  # of A or B, which its macros' tiles take; 0: tiles follow the buffers
    extensions: tuple[str, ...] = ()  # of the machine, without which it does not run
    specialised: bool = False  # compiled anew for each model: its layers.h
    kind: Literal["step", "aside", ""] = "step"  # of the document; the ladder is bench/cfu_ladder.py
    document_microseconds: float | None = None
    beside: str = ""  # what an aside is compared with


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant(
            "baseline",
            "reference kernels on plain RV32IM",
            "reference",
            document_microseconds=4_044_074.545,
        ),
        Variant(
            "software",
            "a kernel of its own for each convolution, on plain RV32IM",
            "software",
            specialised=True,
            document_microseconds=1_428_413.2,
        ),
        Variant(
            "explicit",
            "the array, im2col in main memory",
            "explicit",
            {"IN_BUFFER": 0},
            document_microseconds=678_492.32,
        ),
        Variant(
            "buffered",
            "partial sums stay in the array's buffer",
            "explicit",
            {"IN_BUFFER": 1},
            document_microseconds=669_268.155,
        ),
        Variant(
            "implicit",
            "im2col by address",
            "implicit",
            {"POST": 0, "FULLY_CONNECTED": "REFERENCE"},
            document_microseconds=440_558.235,
        ),
        Variant(
            "post",
            "requantisation by instructions",
            "implicit",
            {"POST": 1, "FULLY_CONNECTED": "REFERENCE"},
            document_microseconds=407_715.35,
        ),
        Variant(
            "published",
            "fully connected unrolled by 8: the document's last step",
            "implicit",
            {"POST": 1, "FULLY_CONNECTED": "UNROLLED"},
            document_microseconds=406_357.93,
        ),
        Variant(
            "software_im2col",
            "matrix product in software, im2col in main memory",
            "matrix",
            {"EXPLICIT": 1},
            kind="aside",
            beside="software",
        ),
        Variant(
            "software_implicit",
            "matrix product in software, im2col by address",
            "matrix",
            {"EXPLICIT": 0},
            kind="aside",
            beside="software_im2col",
        ),
        Variant(
            "tiles_128_512",
            "published, in tiles of 128x128x512",
            "implicit",
            {"POST": 1, "FULLY_CONNECTED": "UNROLLED", "TILE_M": 128, "TILE_N": 128, "TILE_K": 512},
            tile_values=128 * 512,
            kind="aside",
            beside="published",
        ),
        Variant(
            "dense_array",
            "published, fully connected on the array",
            "implicit",
            {"POST": 1, "FULLY_CONNECTED": "ON_ARRAY"},
            kind="aside",
            beside="published",
        ),
        Variant(
            "dense_dot",
            "published, fully connected by four products an instruction (extension dot)",
            "implicit",
            {"POST": 1, "FULLY_CONNECTED": "BY_DOT"},
            extensions=("dot",),
            kind="aside",
            beside="published",
        ),
        Variant(
            "coupled",
            "what the machine's extensions take on the CFU's own memory",
            "coupled",
            {"POST": 1, "FULLY_CONNECTED": "UNROLLED"},
            kind="",
        ),
        Variant("general", "every convolution without groups on the array, by one kernel", "array", kind=""),
    )
}


def variant(name: str) -> Variant:
    """The variant called `name`. Raises ConfigError naming those that exist."""
    if name not in VARIANTS:
        raise ConfigError("firmware", f"there is no variant '{name}'", f"choose one of {', '.join(VARIANTS)}")
    return VARIANTS[name]


def check_machine(chosen: Variant, config: Config) -> None:
    """Raises ConfigError where the machine's array is not the one that the variant's kernels are written for."""
    published = Config()
    if chosen.header == "coupled" and any(getattr(config, key) != getattr(published, key) for key in ARRAY_KEYS):
        reason = f"firmware '{chosen.name}' drives the published array ({', '.join(ARRAY_KEYS)} as in that preset)"
        raise ConfigError("firmware", reason, "choose --set firmware=published, or leave the array as published")
    rows = chosen.tile_values // config.array
    if rows > config.buffer_rows:
        reason = f"firmware '{chosen.name}' fills {rows} rows of {config.array}; buffer_rows is {config.buffer_rows}"
        raise ConfigError("firmware", reason, "choose --set firmware=published, whose tiles follow the buffers")
    missing = [name for name in chosen.extensions if name not in config.extension_names]
    if missing:
        reason = f"firmware '{chosen.name}' uses the extension {', '.join(missing)}"
        raise ConfigError("firmware", reason, f"add --set extensions={','.join((*config.extension_names, *missing))}")
