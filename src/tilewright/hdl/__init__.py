"""Amaranth gateware that several targets use, and tools for gateware. Needs the extra `rtl`.

Parts: parts.py (the base class `Part`, and helpers to drive ports), memory.py (tile memories, queues), axi.py (masters,
registers), transfers.py (2-D transfers between DRAM and tile memories), mac.py and rescale.py (arithmetic).

Tools: build.py converts a component to RTLIL, Verilog or C++, and compiles it to a cached library. model.py runs such a
library: ports are arrays, and a loop in C advances the clock. generated.py finds out from Verilator's C++ output which
evaluations can be skipped. modules.py writes readable Verilog, one file per module. board.py writes the files of a
design for a board.
"""
