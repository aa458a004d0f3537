"""Vector instructions for the value loop, written in LLVM's language: see `loop.products` and `loop.interleaved`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.sim.native import processor_features

#: Values of a tile's line that `loop.products` reads and writes.
LANES = 16


def emit_products(builder: Any, bits: tuple[int, ...], operands: tuple[Any, ...]) -> None:
    """Write `products` in LLVM's language, for the widest vectors of this processor: one loop for each part of a line.

    The weights stay in registers during a loop.
    """
    if bits[0::2][:3] != (32, 16, 16):
        return  # a machine of other widths, which does not use `products`
    columns, dot = _dot_product(builder)
    for low in range(0, LANES, columns):
        _emit_loop(builder, operands, low, columns, dot)


def _dot_product(builder: Any) -> tuple[int, Callable[[Any, Any, Any], Any]]:
    """Return how many sums a vector register holds, and what adds to each the products of two pairs of int16.

    LLVM has no operation of its own for this, and recognises its equivalents in straight code only.
    """
    from llvmlite import ir

    features = processor_features()
    columns = LANES if {"avx512bw", "avx512vnni"} <= features else LANES // 2
    pairs, sums = ir.VectorType(ir.IntType(16), 2 * columns), ir.VectorType(ir.IntType(32), columns)

    def intrinsic(name: str, result: Any, *arguments: Any) -> Any:
        return builder.module.declare_intrinsic(f"llvm.x86.{name}", (), ir.FunctionType(result, arguments))

    if columns == LANES:
        fused = intrinsic("avx512.vpdpwssd.512", sums, sums, sums, sums)
        return columns, lambda total, left, right: builder.call(fused, [total, left, builder.bitcast(right, sums)])
    if "avx2" in features:
        multiplied = intrinsic("avx2.pmadd.wd", sums, pairs, pairs)
        return columns, lambda total, left, right: builder.add(
            total, builder.call(multiplied, [builder.bitcast(left, pairs), right])
        )

    def anywhere(total: Any, left: Any, right: Any) -> Any:
        wide = ir.VectorType(ir.IntType(32), 2 * columns)
        parts = builder.mul(builder.sext(builder.bitcast(left, pairs), wide), builder.sext(right, wide))
        for lane in range(2):
            places = ir.Constant(sums, [2 * column + lane for column in range(columns)])
            total = builder.add(total, builder.shuffle_vector(parts, ir.Constant(wide, ir.Undefined), places))
        return total

    return columns, anywhere


def _emit_loop(builder: Any, operands: tuple[Any, ...], low: int, columns: int, dot: Callable[..., Any]) -> None:
    """Write the loop of `products` for the sums from `low` on, `columns` of them."""
    from llvmlite import ir

    acc, at, inp, x, wgt, w, pitch, count, to_step, by_step = operands
    whole, index = ir.IntType(32), ir.IntType(64)
    pairs, sums = ir.VectorType(ir.IntType(16), 2 * columns), ir.VectorType(whole, columns)
    unknown = ir.Constant(sums, ir.Undefined)
    rows = []
    for k in range(LANES // 2):
        row = builder.gep(wgt, [builder.add(builder.add(w, index(2 * low)), builder.mul(pitch, index(k)))])
        rows.append(builder.load(builder.bitcast(row, pairs.as_pointer()), align=2))
    before, body, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
    builder.cbranch(builder.icmp_signed(">", count, index(0)), body, after)
    builder.position_at_end(body)
    done = builder.phi(index)
    done.add_incoming(index(0), before)
    place = builder.gep(acc, [builder.add(builder.add(at, index(low)), builder.mul(done, to_step))])
    target = builder.bitcast(place, sums.as_pointer())
    source = builder.gep(inp, [builder.add(x, builder.mul(done, by_step))])
    total = builder.load(target, align=4)
    for k, right in enumerate(rows):
        two = builder.bitcast(builder.gep(source, [index(2 * k)]), whole.as_pointer())
        first = builder.insert_element(unknown, builder.load(two, align=2), whole(0))
        left = builder.shuffle_vector(first, unknown, ir.Constant(ir.VectorType(whole, columns), [0] * columns))
        total = dot(total, left, right)
    builder.store(total, target, align=4)
    following = builder.add(done, index(1))
    done.add_incoming(following, body)
    builder.cbranch(builder.icmp_signed("<", following, count), body, after)
    builder.position_at_end(after)


def emit_interleaved(builder: Any, bits: tuple[int, ...], operands: tuple[Any, ...]) -> None:
    """Write `loop.interleaved`: interleave the pairs of each two rows, then those of each two results, and so on."""
    from llvmlite import ir

    if bits != (16, 8):
        return  # a machine of other widths, which does not use `interleaved`
    wgt, raw = operands
    pair, rows = ir.IntType(16), []
    for row in range(LANES):
        place = builder.gep(raw, [ir.Constant(ir.IntType(64), row * LANES)])
        rows.append(builder.load(builder.bitcast(place, ir.VectorType(pair, LANES // 2).as_pointer()), align=1))
    while (half := len(rows) // 2) > 0:
        size = rows[0].type.count
        order = [column + size * second for column in range(size) for second in range(2)]
        places = ir.Constant(ir.VectorType(ir.IntType(32), 2 * size), order)
        rows = [builder.shuffle_vector(rows[k], rows[k + half], places) for k in range(half)]
    values = builder.bitcast(rows[0], ir.VectorType(ir.IntType(8), LANES * LANES))
    wide = ir.VectorType(pair, LANES * LANES)
    builder.store(builder.sext(values, wide), builder.bitcast(wgt, wide.as_pointer()), align=2)
