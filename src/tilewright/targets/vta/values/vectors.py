"""Vector instructions for the value loop, as LLVM code: see `loop.products` and `loop.interleaved`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.sim.native import processor_features

#: The values in a line of a tile for `loop.products`, and the number of input channels with alternating weights.
LANES = 16
GROUP = 4
#: The number added to signed bytes of inp, to make these bytes unsigned.
BIAS = 128
#: The processor features for sums of four byte products in vectors of 512 bits (VPDPBUSD).
BYTES = frozenset({"avx512bw", "avx512vnni"})


def emit_products(builder: Any, bits: tuple[int, ...], operands: tuple[Any, ...]) -> None:
    """Generate `loop.products` for the widest vectors of this processor, with one loop for each part of a line.

    During a loop, registers keep the weights, and the amount by which the bias of inp raises each sum.
    """
    if bits[0::2][:3] != (32, 8, 8):
        return  # a machine of other widths, which does not use `products`
    if processor_features() >= BYTES:
        _emit_loop(builder, operands, 0, LANES, _by_bytes)
    else:
        for low in range(0, LANES, LANES // 2):
            _emit_loop(builder, operands, low, LANES // 2, _by_pairs)


def _emit_loop(
    builder: Any, operands: tuple[Any, ...], low: int, columns: int, dot_of: Callable[..., Callable[[Any, Any], Any]]
) -> None:
    """Generate the loop of `products` for `columns` sums, from sum `low` on."""
    acc, at, inp, x, wgt, w, pitch, count, to_step, by_step = operands
    index = count.type
    weights = _vector(8, GROUP * columns)
    values = _vector(8, LANES)
    sums = _vector(32, columns)
    groups = []
    for k in range(LANES // GROUP):
        group = builder.gep(wgt, [builder.add(builder.add(w, index(GROUP * low)), builder.mul(pitch, index(k)))])
        groups.append(builder.load(builder.bitcast(group, weights.as_pointer()), align=1))
    # `dot` adds the products of all groups' weights with LANES values to sums.
    dot = dot_of(builder, groups, columns)
    # The bias of inp adds 128 times the sum of a column's weights to each sum. Subtract this excess first.
    excess = dot(sums([0] * columns), values([BIAS] * LANES))
    before = builder.block
    body = builder.append_basic_block()
    after = builder.append_basic_block()
    builder.cbranch(builder.icmp_signed(">", count, index(0)), body, after)
    builder.position_at_end(body)
    done = builder.phi(index)
    done.add_incoming(index(0), before)
    place = builder.gep(acc, [builder.add(builder.add(at, index(low)), builder.mul(done, to_step))])
    target = builder.bitcast(place, sums.as_pointer())
    source = builder.bitcast(builder.gep(inp, [builder.add(x, builder.mul(done, by_step))]), values.as_pointer())
    total = builder.sub(builder.load(target, align=4), excess)
    builder.store(dot(total, builder.load(source, align=1)), target, align=4)
    following = builder.add(done, index(1))
    done.add_incoming(following, body)
    builder.cbranch(builder.icmp_signed("<", following, count), body, after)
    builder.position_at_end(after)


def _by_bytes(builder: Any, groups: Sequence[Any], columns: int) -> Callable[[Any, Any], Any]:
    """Return a function that adds products of unsigned and signed bytes to sums, four products at once."""
    sums = _vector(32, columns)
    four = _intrinsic(builder, f"avx512.vpdpbusd.{32 * columns}", sums, sums, sums, sums)

    def dot(total: Any, values: Any) -> Any:
        parts = builder.bitcast(values, _vector(32, LANES // GROUP))
        for k, group in enumerate(groups):
            total = builder.call(four, [total, _spread(builder, parts, k, columns), builder.bitcast(group, sums)])
        return total

    return dot


def _by_pairs(builder: Any, groups: Sequence[Any], columns: int) -> Callable[[Any, Any], Any]:
    pairs = _vector(16, 2 * columns)
    sums = _vector(32, columns)
    rows = []
    for group in groups:
        for first in range(0, GROUP, 2):
            order = [GROUP * column + first + lane for column in range(columns) for lane in range(2)]
            rows.append(builder.sext(_shuffled(builder, group, order), pairs))
    # Without VPDPBUSD, PMADDWD adds two 16-bit products at once. Without AVX2, plain 32-bit multiplications are used.
    has_avx2 = "avx2" in processor_features()
    multiplied = _intrinsic(builder, "avx2.pmadd.wd", sums, pairs, pairs) if has_avx2 else None

    def dot(total: Any, values: Any) -> Any:
        parts = builder.bitcast(builder.zext(values, _vector(16, LANES)), _vector(32, LANES // 2))
        for k, row in enumerate(rows):
            left = builder.bitcast(_spread(builder, parts, k, columns), pairs)
            if multiplied:
                total = builder.add(total, builder.call(multiplied, [left, row]))
                continue
            wide = _vector(32, 2 * columns)
            product = builder.mul(builder.sext(left, wide), builder.sext(row, wide))
            for lane in range(2):
                total = builder.add(total, _shuffled(builder, product, range(lane, 2 * columns, 2)))
        return total

    return dot


def _vector(bits: int, count: int) -> Any:
    from llvmlite import ir

    return ir.VectorType(ir.IntType(bits), count)


def _intrinsic(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    from llvmlite import ir

    return builder.module.declare_intrinsic(f"llvm.x86.{name}", (), ir.FunctionType(result, arguments))


def _shuffled(builder: Any, vector: Any, order: Sequence[int], second: Any = None) -> Any:
    """Select elements by their indices `order` from `vector` followed by `other`."""
    return builder.shuffle_vector(vector, second or vector, _vector(32, len(order))(list(order)))


def _spread(builder: Any, vector: Any, k: int, columns: int) -> Any:
    return _shuffled(builder, vector, [k] * columns)


def emit_interleaved(builder: Any, bits: tuple[int, ...], operands: tuple[Any, ...]) -> None:
    """Generate `loop.interleaved`: interleave the groups of two rows each, then of two results each, and so on."""
    if bits != (8, 8):
        return  # a machine of other widths, which does not use `interleaved`
    wgt, raw = operands
    rows = []
    kind = _vector(8 * GROUP, LANES // GROUP)
    for row in range(LANES):
        place = builder.gep(raw, [_vector(64, 1).element(row * LANES)])
        rows.append(builder.load(builder.bitcast(place, kind.as_pointer()), align=1))
    while (half := len(rows) // 2) > 0:
        size = rows[0].type.count
        order = [column + size * second for column in range(size) for second in range(2)]
        rows = [_shuffled(builder, rows[k], order, rows[k + half]) for k in range(half)]
    builder.store(rows[0], builder.bitcast(wgt, rows[0].type.as_pointer()), align=1)
