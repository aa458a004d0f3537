"""The forms in which the machine computes a node: a matrix product, or a convolution with its pooling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.graph.ir import Graph, Site
from tilewright.graph.ops import Conv2D, DepthwiseConv2D, FullyConnected, MaxPool2D, OnnxOp
from tilewright.graph.ops.base import Window
from tilewright.graph.rounding import Rounding
from tilewright.graph.takes import Takes
from tilewright.targets.gemmini.compiler.convolutions import NO_POOL, Convolution, Frame
from tilewright.targets.gemmini.compiler.products import Product
from tilewright.targets.gemmini.compiler.requantise import NO_LOOPS, SUMS, RequantisingStore, requantising_store
from tilewright.targets.gemmini.compiler.streams import Stream
from tilewright.targets.gemmini.config import Config

Layer = Product | Convolution | Stream
#: A layer, and the size of its input's border in DRAM.
Form = tuple[Layer, Frame]
NO_FRAME = 0, 0, 0, 0
#: The widest border of an input in DRAM.
MOST_FRAME = 255
#: The largest window and stride of a pooled store.
MOST_POOL = 3
LINEAR = FullyConnected | Conv2D | DepthwiseConv2D
TAKES = Takes(stores=False, groups=True, batch=True)


def layers(site: Site, config: Config, rounding: Rounding, pool: Site | None) -> tuple[Form, ...] | str:
    """Return the forms in which the machine can compute a node, or the reason why the node runs on the host.

    The form that is probably the fastest comes first. `pool` is a max pooling of the result in the same launch.
    """
    op = site.node.op
    if not isinstance(op, LINEAR):
        return OnnxOp.real(site) or f"{op.label} is not compiled for gemmini"
    if unfit := NO_LOOPS if config.dataflow == "os" else op.refusal(site, TAKES):
        return unfit
    store = requantising_store(site, rounding)
    x = site.input(0)
    w = site.input(1)
    store_or_sums = SUMS if isinstance(store, str) else store
    product_forms: list[Form] = []
    # A 1x1 convolution is a matrix product of pixels. A matrix product is also a convolution of a one-row image.
    pointwise = isinstance(op, Conv2D) and op.window == Window() and x.shape[-1] == w.shape[-1] and not pool
    if isinstance(op, FullyConnected) or pointwise:
        depth = w.size // w.shape[0]
        rows = (1, x.size // depth)
        channels = (depth, w.shape[0])
        flat = Convolution(1, rows, channels, channels, Window(), rows, NO_POOL, rows, store_or_sums)
        product_forms += (Stream(flat, config), NO_FRAME), (Product(rows[1], *channels, store_or_sums), NO_FRAME)
    forms = list[Form]()
    reason = ""
    if not isinstance(op, FullyConnected):
        convolution = _convolution(site, op, store_or_sums, pool, config.dim)
        forms, reason = _convolved(convolution, x.zero_point, store, config, not pointwise)
    return (*product_forms, *forms) or reason


def _convolved(
    convolution: Convolution | str, zero: int, store: RequantisingStore | str, config: Config, streams: bool
) -> tuple[list[Form], str]:
    """Return the forms of a convolution, and why LOOP_CONV_WS is excluded. `zero` is the input's zero point."""
    if isinstance(convolution, str):
        return [], convolution
    frame = NO_FRAME
    if any(convolution.window.padding) and zero:  # the hardware pads with the code 0
        if (framed := _framed(convolution)) is None:
            return [], f"has a border of more than {MOST_FRAME} pixels of the code {zero}"
        convolution, frame = framed
    forms = [*_streams(convolution, frame, config)] if streams else []
    if unlooped := _unlooped(convolution, store):
        return forms, unlooped
    forms.append((convolution, frame))
    # With a border in DRAM, the input can be loaded in one piece, and kernel columns can be packed. A border in DRAM is
    # faster with strides (the hardware loads unused positions) and with few channels (which do not fill a row of the
    # array).
    strided = max(convolution.window.stride) > 1
    few = convolution.group[0] <= config.dim // 2
    if convolution.has_borders and (strided or few) and (framed := _framed(convolution)):
        forms.append(framed)
    return forms, ""


def _framed(convolution: Convolution) -> tuple[Convolution, Frame] | None:
    """Return the convolution with a border in DRAM, and the border's size. None if the border is too wide."""
    framed = convolution.framed()
    return framed if max(framed[1]) <= MOST_FRAME else None


def _streams(convolution: Convolution, frame: Frame, config: Config) -> Iterator[Form]:
    """Yield the form with explicit commands, if it exists. `frame` is the border that the input already has in DRAM."""
    # If there are few channels and a border in DRAM, several kernel columns can share a row of A.
    inputs = convolution.group[0]
    window = convolution.window
    few = convolution.groups == 1 and inputs <= config.dim // 2 and max(window.dilation) == 1
    if few and (framed := _framed(convolution)):
        pixels = min(window.kernel[1], config.dim // inputs)
        yield Stream(replace(framed[0], pixels=pixels), config), framed[1] if frame == NO_FRAME else frame
    elif convolution.groups == 1 or inputs % config.dim == 0:
        yield Stream(convolution, config), frame


def _convolution(
    site: Site, op: Conv2D | DepthwiseConv2D, store: RequantisingStore, pool: Site | None, dim: int
) -> Convolution | str:
    x = site.input(0)
    w = site.input(1)
    out = site.output
    window = op.window
    channels = (x.shape[-1], out.shape[-1])
    if isinstance(op, Conv2D):
        group = w.shape[3], channels[1] // (channels[0] // w.shape[3])
    elif channels[0] == channels[1]:
        group = (min(dim, channels[0]),) * 2
    else:
        return (
            f"a depthwise convolution with {channels[1] // channels[0]} results a channel is not compiled for gemmini"
        )
    assert len(out.shape) == 4
    last = pool.output if pool else out
    sizes = [(tensor.shape[1], tensor.shape[2]) for tensor in (x, out, last)]
    pooling = pool.node.op.window if pool and isinstance(pool.node.op, MaxPool2D) else NO_POOL
    return Convolution(out.shape[0], sizes[0], channels, group, window, sizes[1], pooling, sizes[2], store)


def _unlooped(convolution: Convolution, store: RequantisingStore | str) -> str | None:
    window = convolution.window
    if window.stride[0] != window.stride[1] or window.dilation[0] != window.dilation[1]:
        return f"stride={window.stride}, dilation={window.dilation}: LOOP_CONV_WS has one number for both axes"
    if isinstance(store, str):
        return f"LOOP_CONV_WS stores int8 codes only: {store}"
    if not convolution.fits_registers:
        return "its sizes, stride or dilation do not fit the registers of LOOP_CONV_WS"
    return None


def pooling(graph: Graph, site: Site, store: RequantisingStore | str) -> Site | None:
    """Return the max pooling that the store of a convolution can compute, or None."""
    # The pooling must be the only reader of the convolution's result. A pooled store treats pixels outside of the image
    # as 0, so with padding, all codes must be at least 0.
    name = site.output.name
    readers = graph.readers.get(name, ())
    if isinstance(store, str) or name in graph.results or len(readers) != 1:
        return None
    op = readers[0].op
    pool = graph.site(readers[0])
    if not isinstance(op, MaxPool2D) or op.activation != "none" or pool.output.quant != site.output.quant:
        return None
    window = op.window
    square = window.kernel[0] == window.kernel[1] and window.stride[0] == window.stride[1]
    small = max(*window.kernel, *window.stride) <= MOST_POOL and window.dilation == (1, 1)
    return pool if square and small and (store.relu or not any(window.padding)) else None
