"""Write the engine's C driver for the CPU (PS). The driver writes descriptors, serves pages and rearranges results.

`write` creates a folder with zynq_engine.h (sizes, registers, bits), zynq_driver.h, zynq_driver.c, and zynq_ddr.bin
(the initial contents of DDR: weight blocks, factors, bias blocks). Operands are stored in DDR as blocks (placement.py).
The driver needs no operating system. The user of the driver provides three functions that access the engine: read a
register, write a register, move a block. In the C files next to this module, @name@ is a placeholder.
"""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import numpy as np

from tilewright.array import Array
from tilewright.errors import UnsupportedError
from tilewright.files import write_folder
from tilewright.graph.ops import Reshape
from tilewright.program import driver
from tilewright.program.header import Group, bit_ranges, header, macros, structure
from tilewright.program.program import HostStep, Program
from tilewright.targets.zynq import placement
from tilewright.targets.zynq.config import LANES, LINE, STORES, Config
from tilewright.targets.zynq.isa.image import LayerImage
from tilewright.targets.zynq.isa.layer import LAYOUT, RULES, Kind, Layer
from tilewright.targets.zynq.timing.service import schedule

#: Byte offsets of the registers on the PS's port [I]. The document has only block, waiting and done.
REGISTERS = {
    "CONTROL": 0x00,  # write 1 to start the layer of the descriptor
    "STATUS": 0x04,  # bit 0 waiting, bit 1 idle, bit 3 ready; bits 4..5 store of the request, bit 6 write
    "BLOCK": 0x08,  # the block of the request
    "DONE": 0x0C,  # write the number of a store after moving its block
    "JOB": 0x10,  # with two frames: write the store of the next page, then wait for `ready`
    "DESCRIPTOR": 0x40,  # the words of the descriptor
    "FACTOR": 0x8000,  # the requantisation factors, as doubles: low word, high word
}
STATUS_WAITING = 1
STATUS_IDLE = 2
STATUS_READY = 8
STATUS_STORE_SHIFT = 4
STATUS_WRITE = 64


def write(program: Program, folder: str | Path) -> None:
    """Write the driver of a program to a folder.

    Raises UnsupportedError as `sources` does, and InputError if the folder cannot be written.
    """
    write_folder(folder, sources(program))


def sources(program: Program) -> dict[str, bytes]:
    """Return the files of the C driver: {name: content}.

    Raises UnsupportedError if the driver does not support a setting of the engine, or if no layer runs on the engine.
    """
    config = Config.read(program.config, {})
    for key in ("fc_batch",) if config.window else ("fc_batch", "outputs"):
        if (value := getattr(config, key)) != 1:
            raise UnsupportedError("driver", f"{key}={value} has no gateware to drive", f"compile with {key}=1")
    images = [LayerImage.of(launch, config) for launch in program.launches]
    if not images:
        raise UnsupportedError("driver", "no layer of the program runs on the engine")
    content, sizes = _memory(images)
    first_factors = accumulate((image.layer.channels for image in images), initial=0)
    jobs = [_jobs(image.layer) for image in images]
    places = zip(first_factors, accumulate(map(len, jobs), initial=0), map(len, jobs), strict=False)
    layers = [_entry(image, *place) for image, place in zip(images, places, strict=True)]
    fill = {
        "layers": ",\n".join(layers),
        "jobs": ",".join(str(page) for layer in jobs for page in layer) or "0",
        "count": len(layers),
        "chain": _chain(program),
        "words": LAYOUT.bits // 32,
        **sizes,
    }
    code = driver.filled(Path(__file__).parent, ("zynq_driver.h", "zynq_driver.c"), fill)
    return {**code, "zynq_engine.h": engine_header(config).encode("ascii"), "zynq_ddr.bin": content}


def engine_header(config: Config) -> str:
    """Return the text of zynq_engine.h: sizes, register map, bits of a descriptor."""
    choices = {key: {word: index for index, word in enumerate(words)} for key, words in Config.words().items()}
    sizes = {key: choices[key][value] if key in choices else value for key, value in config.to_dict().items()}
    sizes["data_line"] = LINE["data"]
    blocks = {f"{store}_block_words": config.block_words(store) for store in STORES}
    status = {
        **{"WAITING": STATUS_WAITING, "IDLE": STATUS_IDLE, "READY": STATUS_READY},
        **{"STORE_SHIFT": STATUS_STORE_SHIFT, "WRITE": STATUS_WRITE},
    }
    groups = [
        Group("sizes", macros("zynq", {"lanes": LANES, **sizes, **blocks})),
        *(Group(f"values of {key}", macros(f"zynq_{key}", words)) for key, words in choices.items()),
        Group("kinds of layer", macros("zynq_kind", {kind.name: int(kind) for kind in Kind})),
        Group("requantisation rules", macros("zynq_rule", {rule: index for index, rule in enumerate(RULES)})),
        Group("stores", macros("zynq_store", {store: index for index, store in enumerate(STORES)})),
        Group("registers, byte offsets", macros("zynq_reg", {name: f"0x{at:02x}" for name, at in REGISTERS.items()})),
        Group("bits of STATUS", macros("zynq_status", status)),
        Group("bits of each descriptor field: first, last", bit_ranges("ZYNQ_DESC", LAYOUT)),
    ]
    return header("ZYNQ_ENGINE_H_", "The VGG16 engine.", groups, structure("zynq_descriptor", LAYOUT))


def _memory(images: list[LayerImage]) -> tuple[bytes, dict[str, int]]:
    """Return the initial contents of DDR, and the byte offsets of its parts and of the areas for data and results."""
    summing = [image for image in images if image.layer.channels]
    parts = {
        "weight": [placement.blocks(placement.weight(image.layer), image.weight) for image in summing],
        "factor": [np.broadcast_to(image.factor, image.layer.channels).astype("<f8") for image in summing],
        "bias": [bias_blocks(image.layer, image.bias, image.weight).astype("<i4") for image in summing],
    }
    content = b""
    sizes = {}
    for name, arrays in parts.items():
        sizes[f"{name}_at"] = len(content)
        content += b"".join(array.tobytes() for array in arrays)
    # All layers share the two areas, whose sizes are those of the largest layer.
    at = len(content)
    config = images[0].layer.config
    areas = {
        "data": max(placement.data_blocks(image.layer) for image in images),
        "result": max(-(-image.layer.outputs // config.block_words("result")) for image in images),
    }
    for name, blocks in areas.items():
        at = -(-at // 64) * 64
        sizes[f"{name}_at"] = at
        at += blocks * config.block_words(name)
    return content, {**sizes, "bytes": at}


def _jobs(layer: Layer) -> list[int]:
    """Return the pages (store + 4 * block) that the PS moves for a layer with two frames, in order."""
    if layer.config.frames == 1:
        return []
    service = schedule(layer).service
    pages = service.cause + len(STORES) * service.block
    return pages[service.cause < len(STORES)].tolist()  # without rearranging results


def _entry(image: LayerImage, factor: int, job: int, jobs: int) -> str:
    layer = image.layer
    words = LAYOUT.encode_rows([layer.fields]).view("<u4")[0]
    code = ", ".join(f"0x{int(word):08x}u" for word in words)
    kind = f"ZYNQ_KIND_{layer.kind.name}"
    fc = layer.kind == Kind.FC
    sizes = (1, 1, layer["r"], layer["l"]) if fc else (layer["rows"], layer["cols"], layer["ic"], layer["oc"])
    rows = placement.row_blocks(layer) if layer.conv else placement.Rows(1, sizes[0])
    together = placement.kernels_per_block(layer) if layer.conv and layer.config.oc_blocking else 1
    numbers = (*sizes, rows.blocks, rows.step, layer["weight_base"], layer["bias_base"], factor, layer.channels)
    laid_out = layer.pixel if layer.conv else sizes[2], layer["zx"] & 255, together, job, jobs
    return f"    {{{{{code}}},\n     {kind}, {', '.join(map(str, numbers + laid_out))}}}"


def _chain(program: Program) -> int:
    """Return 1 if every layer reads the result of the previous layer, possibly after reshapes, else 0."""
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


def bias_blocks(layer: Layer, bias: Array, weights: Array) -> Array:
    """Return the initial values of the sums, in blocks, int32 [blocks, biases per block]."""
    if layer.config.window:
        bias = placement.biases(layer, weights, bias)
    return placement.blocks(placement.bias(layer), bias)
