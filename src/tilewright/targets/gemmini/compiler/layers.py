"""What a node becomes: a matrix product, a convolution with its pooling, or a step of the host with a reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.graph.ir import Graph, Site
from tilewright.graph.ops import Conv2D, DepthwiseConv2D, FullyConnected, MaxPool2D, OnnxOp
from tilewright.graph.ops.base import Window
from tilewright.graph.rounding import Rounding
from tilewright.graph.takes import Takes
from tilewright.targets.gemmini.compiler.convolutions import NO_POOL, Convolution, Frame
from tilewright.targets.gemmini.compiler.leaving import NO_LOOPS, SUMS, Leaving, leaving
from tilewright.targets.gemmini.compiler.products import Product
from tilewright.targets.gemmini.compiler.streams import Stream
from tilewright.targets.gemmini.config import Config

Layer = Product | Convolution | Stream
#: A layer, and the border of its input in DRAM.
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

    The likely best form comes first. `pool` is a max pooling of its result that shall be computed with it.
    """
    op = site.node.op
    if not isinstance(op, LINEAR):
        return OnnxOp.real(site) or f"{op.label} is not compiled for gemmini"
    if unfit := NO_LOOPS if config.dataflow == "os" else op.refusal(site, TAKES):
        return unfit
    leaves = leaving(site, rounding)
    x = site.input(0)
    w = site.input(1)
    leaving_as = SUMS if isinstance(leaves, str) else leaves
    found: list[Form] = []
    pointwise = isinstance(op, Conv2D) and op.window == Window() and x.shape[-1] == w.shape[-1] and not pool
    if isinstance(op, FullyConnected) or pointwise:
        depth = w.size // w.shape[0]
        rows = (1, x.size // depth)
        channels = (depth, w.shape[0])
        flat = Convolution(1, rows, channels, channels, Window(), rows, NO_POOL, rows, leaving_as)
        found += (Stream(flat, config), NO_FRAME), (Product(rows[1], *channels, leaving_as), NO_FRAME)
    forms = list[Form]()
    reason = ""
    if not isinstance(op, FullyConnected):
        convolution = _convolution(site, op, leaving_as, pool, config.dim)
        forms, reason = _convolved(convolution, x.zero_point, leaves, config, not pointwise)
    return (*found, *forms) or reason


def _convolved(
    convolution: Convolution | str, zero: int, leaves: Leaving | str, config: Config, streams: bool
) -> tuple[list[Form], str]:
    """Return the forms of a convolution of an input with this zero point, or the reason why there is none."""
    if isinstance(convolution, str):
        return [], convolution
    frame = NO_FRAME
    if any(convolution.window.padding) and zero:  # the hardware pads with the code 0
        if (framed := _framed(convolution)) is None:
            return [], f"has a border of more than {MOST_FRAME} pixels of the code {zero}"
        convolution, frame = framed
    found = [*_streams(convolution, frame, config)] if streams else []
    if unlooped := _unlooped(convolution, leaves):
        return found, unlooped
    found.append((convolution, frame))
    strided = max(convolution.window.stride) > 1
    few = convolution.group[0] <= config.dim // 2
    if convolution.has_borders and (strided or few) and (framed := _framed(convolution)):
        found.append(framed)
    return found, ""


def _framed(convolution: Convolution) -> tuple[Convolution, Frame] | None:
    """Return the convolution of an input that has its border in DRAM, and this; None if the border is too wide."""
    made = convolution.framed()
    return made if max(made[1]) <= MOST_FRAME else None


def _streams(convolution: Convolution, frame: Frame, config: Config) -> Iterator[Form]:
    """Yield a convolution by explicit commands, if each group has whole blocks of inputs. `frame` is its border so far.

    Kernel columns of few channels share a row of A; the input then needs its border.
    """
    inputs = convolution.group[0]
    window = convolution.window
    few = convolution.groups == 1 and inputs <= config.dim // 2 and max(window.dilation) == 1
    if few and (framed := _framed(convolution)):
        pixels = min(window.kernel[1], config.dim // inputs)
        yield Stream(replace(framed[0], pixels=pixels), config), framed[1] if frame == NO_FRAME else frame
    elif convolution.groups == 1 or inputs % config.dim == 0:
        yield Stream(convolution, config), frame


def _convolution(
    site: Site, op: Conv2D | DepthwiseConv2D, leaves: Leaving, pool: Site | None, dim: int
) -> Convolution | str:
    """Return a node as a convolution, or the reason why the machine cannot compute it."""
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
    return Convolution(out.shape[0], sizes[0], channels, group, window, sizes[1], pooling, sizes[2], leaves)


def _unlooped(convolution: Convolution, leaves: Leaving | str) -> str | None:
    """Return why LOOP_CONV_WS cannot compute a convolution; None if it can."""
    window = convolution.window
    if window.stride[0] != window.stride[1] or window.dilation[0] != window.dilation[1]:
        return f"stride={window.stride}, dilation={window.dilation}: LOOP_CONV_WS has one number for both axes"
    if isinstance(leaves, str):
        return f"LOOP_CONV_WS stores int8 codes only: {leaves}"
    if not convolution.fits_registers:
        return "its sizes, stride or dilation do not fit the registers of LOOP_CONV_WS"
    return None


def pooling(graph: Graph, site: Site, leaves: Leaving | str) -> Site | None:
    """Return the max pooling that can be computed with a convolution: its only reader, which a pooled store can do.

    A pooled store takes pixels outside as 0, so a window with padding needs codes of at least 0.
    """
    name = site.output.name
    readers = graph.readers.get(name, ())
    if isinstance(leaves, str) or name in graph.results or len(readers) != 1:
        return None
    op = readers[0].op
    pool = graph.site(readers[0])
    if not isinstance(op, MaxPool2D) or op.activation != "none" or pool.output.quant != site.output.quant:
        return None
    window = op.window
    square = window.kernel[0] == window.kernel[1] and window.stride[0] == window.stride[1]
    small = max(*window.kernel, *window.stride) <= MOST_POOL and window.dilation == (1, 1)
    return pool if square and small and (leaves.relu or not any(window.padding)) else None
