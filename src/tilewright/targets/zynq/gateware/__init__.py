"""The engine in gateware (Amaranth): its state machines, stores and compute unit, and the design for a board."""
