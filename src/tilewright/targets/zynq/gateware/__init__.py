"""The engine in gateware (Amaranth), and the files of a design for a board."""
