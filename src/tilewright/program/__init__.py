"""Programs as data: compilers produce them, and machines run them. This package does not run programs.

A `Program` (program.py) is a list of steps: launches of the machine, and nodes that the host runs. Each target defines
the `arrays` and the `meta` of its launches. Most targets use a `LaunchImage` (launch_image.py) with instructions and
DRAM segments. `Placement` (placement.py) maps the elements of a tensor to bytes of a segment.

file.py saves a program as FILE.twp: serial.py converts the program to JSON values and arrays, and archive.py writes
them to a zip file. listing.py and words.py read and write the text form. instruction.py describes the bit fields of
instructions; the encoding, the text and the C headers (header.py) are derived from this description. cache.py stores
programs on disk, and remembered.py stores results of searches. stages.py is the output of `explain`.
"""
