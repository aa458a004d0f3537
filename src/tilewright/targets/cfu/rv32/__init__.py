"""The RV32IM core: ELF, decoding, the loop, caches and bus, traps, source lines."""
