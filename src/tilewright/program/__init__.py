"""Programs as data: compilers produce them, machines run them. Nothing here runs anything.

A `Program` (program.py) is a list of steps: launches of the machine, and nodes that the host runs. The arrays and the
`meta` of a `Launch` are the target's business; most targets use a `LaunchImage` (launch_image.py): instructions and
DRAM segments. `Placement` (placement.py) says where the elements of a tensor lie in such a segment.

file.py saves a program as FILE.twp: serial.py converts it to JSON values and arrays, archive.py writes these to a zip
file. listing.py and words.py are the text form. instruction.py describes bit fields of instructions, from which their
encoding, their text and C headers (header.py) follow. cache.py and remembered.py keep programs and results of searches
on disk. stages.py is the answer of `explain`.
"""
