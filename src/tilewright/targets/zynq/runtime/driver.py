"""The PS's part in C, for a bare-metal Zynq or any host: layers as descriptors, the page-service loop, re-layout.

`write` makes a folder: zynq_engine.h (sizes, registers, bits), zynq_driver.h, zynq_driver.c, and zynq_ddr.bin, what DDR
holds before the first layer: weight blocks, bias blocks, factors. The engine is reached through three functions that
the caller gives: read a register, write one, move a block.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tilewright.array import Array
from tilewright.errors import InputError, UnsupportedError
from tilewright.graph.ops import Reshape
from tilewright.program.program import HostStep, Program
from tilewright.targets.zynq.config import Config
from tilewright.targets.zynq.isa.descriptor import LAYOUT, Kind
from tilewright.targets.zynq.isa.image import LayerImage
from tilewright.targets.zynq.runtime import header
from tilewright.targets.zynq.runtime.driver_source import HEADER, SOURCE
from tilewright.targets.zynq.timing import ddr, walk


def write(program: Program, folder: str | Path) -> None:
    """Write the driver of a program. Raises UnsupportedError for engines whose pages the document's protocol cannot
    serve, InputError for a folder that cannot be written.
    """
    files = sources(program)
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise InputError(str(folder), f"cannot be written: {error.strerror or error}") from None


def sources(program: Program) -> dict[str, bytes]:
    """The files by name."""
    config = Config.read(program.config, {})
    for key in ("frames", "outputs", "oc_blocking", "fc_batch"):
        default = getattr(Config(), key)
        if getattr(config, key) != default:
            reason = f"the driver serves the document's requests; {key}={getattr(config, key)} needs another protocol"
            raise UnsupportedError("driver", reason, f"compile with {key}={default}")
    images = [LayerImage.of(launch, config) for launch in program.launches]
    if not images:
        raise UnsupportedError("driver", "the program has no layer for the engine")
    content, sizes = _memory(images)
    layers = [_entry(image, at) for image, at in zip(images, _factors_at(images), strict=True)]
    fill = {
        "layers": ",\n".join(layers),
        "count": str(len(layers)),
        "chain": str(_chain(program)),
        "words": str(LAYOUT.bits // 32),
        **{name: str(value) for name, value in sizes.items()},
    }
    texts = {"zynq_engine.h": header.text(config), "zynq_driver.h": HEADER, "zynq_driver.c": SOURCE}
    for name, value in fill.items():
        texts = {file: text.replace(f"@{name}@", value) for file, text in texts.items()}
    return {**{name: text.encode("ascii") for name, text in texts.items()}, "zynq_ddr.bin": content}


def _memory(images: list[LayerImage]) -> tuple[bytes, dict[str, int]]:
    """DDR before the first layer, and where its parts and the areas behind it start."""
    summing = [image for image in images if image.layer.channels]
    weight = _joined([ddr.weight_blocks(image.layer, image.weight) for image in summing])
    bias = _joined([ddr.bias_blocks(image.layer, image.bias).astype("<i4") for image in summing])
    factor = _joined([_factors(image) for image in summing])
    parts, sizes, at = (weight, factor, bias), {}, 0
    for name, part in zip(("weight", "factor", "bias"), parts, strict=True):
        sizes[f"{name}_at"] = at
        at += len(part)
    config = images[0].layer.config
    areas = {
        "data": max(walk.data_blocks(image.layer) for image in images),
        "result": max(-(-image.layer.outputs // config.block_words("result")) for image in images),
    }
    for name, blocks in areas.items():
        at = -(-at // 64) * 64
        sizes[f"{name}_at"] = at
        at += blocks * config.block_words(name)
    return b"".join(parts), {**sizes, "bytes": at}


def _joined(arrays: list[Array]) -> bytes:
    return b"".join(array.tobytes() for array in arrays)


def _factors(image: LayerImage) -> Array:
    """One for each channel."""
    return np.broadcast_to(image.factor, image.layer.channels).astype("<f8")


def _factors_at(images: list[LayerImage]) -> list[int]:
    """The index of each layer's first factor."""
    counts = [image.layer.channels for image in images]
    return [0, *np.cumsum(counts).tolist()[:-1]]


def _entry(image: LayerImage, factor: int) -> str:
    layer = image.layer
    words = LAYOUT.encode_rows([layer.fields]).view("<u4")[0]
    code = ", ".join(f"0x{int(word):08x}u" for word in words)
    kind = f"ZYNQ_KIND_{layer.kind.name}"
    fc = layer.kind == Kind.FC
    sizes = (1, 1, layer["r"], layer["l"]) if fc else (layer["rows"], layer["cols"], layer["ic"], layer["oc"])
    rows = walk.row_blocks(layer) if layer.conv and layer.config.layout == "rows" else walk.Rows(1, sizes[0])
    numbers = (*sizes, rows.blocks, rows.step, layer["weight_base"], layer["bias_base"], factor, layer.channels)
    return f"    {{{{{code}}},\n     {kind}, {', '.join(map(str, numbers))}}}"


def _chain(program: Program) -> int:
    """1 where every layer reads the one before it, with nothing between them but other shapes of the same values."""
    if program.graph is None:
        return 0
    inside = [index for index, step in enumerate(program.steps) if not isinstance(step, HostStep)]
    held = ""
    for step in program.steps[inside[0] : inside[-1] + 1]:
        node = program.graph.node(step.node if isinstance(step, HostStep) else step.nodes[0])
        if (held and node.inputs[0] != held) or (isinstance(step, HostStep) and not isinstance(node.op, Reshape)):
            return 0
        held = node.outputs[0]
    return 1
