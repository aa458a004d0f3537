"""Programs as data, which compilers produce and machines run. This package runs no programs.

A `Program` (program.py) is a list of steps: launches of the machine, and nodes that the host runs. Each target defines
the `arrays` and the `meta` of its `Launch`; most targets use a `LaunchImage` (launch_image.py): instructions and DRAM
segments. `Placement` (placement.py) maps the elements of a tensor to bytes of a segment.

file.py saves a program as FILE.twp: serial.py converts the program to JSON values and arrays, and archive.py writes
these to a zip file. listing.py and words.py read and write the text form. instruction.py describes the bit fields of
instructions; the encoding, the text and the C headers (header.py) are derived from this description. cache.py keeps
programs on disk, and remembered.py keeps results of searches. stages.py is the output of `explain`.
"""
