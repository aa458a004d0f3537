"""Compile a network to firmware and its data: operator records, constants, an arena, C headers, an ELF file."""
