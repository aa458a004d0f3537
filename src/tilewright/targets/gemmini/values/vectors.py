"""Vector instructions for the value loop, written in LLVM's language: see `loop.products`."""

from __future__ import annotations

from typing import Any

#: Sums that `loop.products` computes at once.
LANES = 16


def emit_products(builder: Any, bits: tuple[int, ...], operands: tuple[Any, ...]) -> None:
    """Write `loop.products`: a loop over rows, and in it one over the factors of a row, with the sums in a register."""
    from llvmlite import ir

    sums, at, pitch, factors, first, stride, rows, depth, weights = operands
    lanes = ir.VectorType(ir.IntType(32), LANES)

    def vector(array: Any, element: Any) -> Any:
        return builder.bitcast(builder.gep(array, [element]), lanes.as_pointer())

    row, close_rows = _loop(builder, rows)
    target = vector(sums, builder.add(at, builder.mul(row, pitch)))
    start = builder.add(first, builder.mul(row, stride))
    held = builder.load(target, align=4)
    before = builder.block
    k, close_depth = _loop(builder, depth)
    total = builder.phi(lanes)
    total.add_incoming(held, before)
    factor = builder.sext(builder.load(builder.gep(factors, [builder.add(start, k)])), ir.IntType(32))
    one = builder.insert_element(ir.Constant(lanes, ir.Undefined), factor, ir.IntType(32)(0))
    spread = builder.shuffle_vector(one, ir.Constant(lanes, ir.Undefined), ir.Constant(lanes, [0] * LANES))
    weight = builder.load(vector(weights, builder.add(at, builder.mul(k, pitch))), align=4)
    more = builder.add(total, builder.mul(spread, weight))
    total.add_incoming(more, builder.block)
    close_depth()
    builder.store(more, target, align=4)
    close_rows()


def _loop(builder: Any, count: Any) -> Any:
    """Begin a loop that runs `count` times, at least once; return its counter, and the function that ends it."""
    from llvmlite import ir

    index = ir.IntType(64)
    before, body = builder.block, builder.append_basic_block()
    builder.branch(body)
    builder.position_at_end(body)
    counter = builder.phi(index)
    counter.add_incoming(index(0), before)

    def close() -> None:
        following = builder.add(counter, index(1))
        counter.add_incoming(following, builder.block)
        after = builder.append_basic_block()
        builder.cbranch(builder.icmp_signed("<", following, count), body, after)
        builder.position_at_end(after)

    return counter, close
