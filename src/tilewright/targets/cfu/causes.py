"""The causes of cycles on the CFU system, each with its meaning and a remedy.

The cycles of a layer have the causes in NETWORK. The profile of an ELF file (`exec FILE.elf`) has more categories
(CATEGORIES): the CPU's control, devices, and each use of the CFU. A profile also has the waits of single instructions
(WAITS, with the names of timing.state.Cause).
"""

from __future__ import annotations

from tilewright.sim.figures import Definition

NETWORK = {
    "CPU arithmetic": Definition(
        "The CPU executes instructions, a cycle each, and waits for its own shifts, products and branches.",
        "Move work to the CFU, unroll loops, or let one instruction do more.",
    ),
    "CFU wait": Definition(
        "The CPU waits until the CFU is free or answers.",
        "Give the CPU other work meanwhile (`start=async`), or make the CFU faster.",
    ),
    "memory": Definition(
        "The CPU waits for loads and stores: data cache misses, the bus, or a result that is used at once.",
        "Enlarge the data cache (`dcache_bytes`), read data in order, or let the CFU fetch (image memory).",
    ),
    "instruction fetch": Definition(
        "The CPU waits for instructions that are not in the instruction cache.",
        "Enlarge the cache (`icache_bytes`), make the inner loop shorter, or move functions that share lines apart.",
    ),
}
CATEGORIES = {
    "CPU control": Definition(
        "The CPU executes branches and jumps, and refills its pipeline after them.",
        "Unroll loops, or call fewer functions.",
    ),
    "transfer": Definition(
        "Instructions move operands to the CFU and results from it.",
        "Move more bytes in an instruction (`transfer=paired`), or reuse what the buffers hold.",
    ),
    "waiting for the array": Definition(
        "The program starts the array, and asks until the array has finished.",
        "Do other work between start and check.",
    ),
    "post-processing": Definition(
        "CFU instructions requantise sums.",
        "Use the instruction that requantises in one step (`srdhm=single`).",
    ),
    "other custom instructions": Definition(
        "Custom instructions that the table of the CFU does not have.",
        "Look at the functions and source lines of the profile.",
    ),
    "devices and CSRs": Definition(
        "The CPU reads or writes devices, control registers or counters.",
        "Read counters and print outside of inner loops.",
    ),
}
WAITS = {
    "load_use": Definition("An instruction waits for a load.", "Put other instructions between load and use."),
    "result_use": Definition(
        "An instruction waits for a product, quotient or shift.", "Put other instructions in between."
    ),
    "cfu_use": Definition("An instruction waits for the answer of the CFU.", "Put other instructions in between."),
    "divide": Definition("The CPU divides.", "Divide by powers of two, or multiply by the reciprocal."),
    "branch": Definition("The pipeline refills after a branch or jump.", "Unroll loops."),
    "fetch": Definition("The instruction cache misses.", "See *instruction fetch*."),
    "load_miss": Definition("The data cache misses.", "See *memory*."),
    "store": Definition("The bus has no free place for a store.", "Store less often, or whole words."),
    "redo": Definition("A load follows a store to the same bytes.", "Keep the value in a register."),
    "drain": Definition("A custom instruction waits until earlier loads and stores are done.", "Load earlier."),
    "cfu": Definition("The CFU is busy, or answers late.", "See *CFU wait*."),
    "device": Definition("A device answers.", "Access devices outside of inner loops."),
    "system": Definition("The CPU accesses a CSR, or waits at a fence.", "Read counters outside of inner loops."),
}
CAUSES = {**NETWORK, **CATEGORIES, **WAITS}
