"""From a network to what the firmware reads: operator records, constants, an arena, and the program around them."""
