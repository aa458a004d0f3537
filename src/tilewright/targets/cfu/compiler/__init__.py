"""Compile a network to firmware and its data: operator records, constants, activation areas, C headers, ELF file."""
