"""Matrix products and convolutions by explicit commands.

A tile's input lies in the scratchpad once for each column of the kernel and each row phase of the stride, without gaps.
So the pixels that a block of weights needs are always consecutive rows, and blocks of A are full whatever the width of
the image. Weights pass through a ring; sums alternate between the halves of the accumulator.
"""

from tilewright.targets.gemmini.compiler.streams.stream import Stream

__all__ = ["Stream"]
