"""A DRAM that opens its rows byte by byte."""

from __future__ import annotations


def opened(bursts: list[tuple[int, int]], row_bytes: int, banks: int) -> int:
    """Count the row activations of bursts, byte by byte. Each burst is an address and a number of bytes."""
    open_rows: dict[int, int] = {}
    count = 0
    for address, size in bursts:
        for byte in range(address, address + size):
            row = byte // row_bytes
            count += open_rows.get(row % banks) != row
            open_rows[row % banks] = row
    return count
