"""From a network to firmware and the data that it reads: operator records, constants, an arena, C headers, an ELF."""
