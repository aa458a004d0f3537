"""Choices without instructions, for the compilers of several targets: cuts, slots, places by lifetime, search."""
