"""Gateware in Amaranth that targets share, and the tools around it. Needs the extra `rtl`.

Parts: parts.py (the base class `Part`, and helpers to drive ports), memory.py (tile memories, queues), axi.py (masters,
registers), transfers.py (2-D transfers between DRAM and tile memories), mac.py and rescale.py (arithmetic).

Tools: build.py converts a component to RTLIL, Verilog or C++, and compiles it to a library that is cached; model.py
runs such a library: ports are arrays, a loop in C advances the clock. generated.py looks for short cuts in the C++ that
Verilator writes. modules.py writes Verilog for people, a file for each module, and board.py the files of a design for a
board.
"""
