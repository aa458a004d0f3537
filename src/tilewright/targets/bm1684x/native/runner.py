"""The process of one firmware: load the library and serve launches. It imports nothing of Tilewright.

python runner.py LIBRARY FINGERPRINT INPUT OUTPUT     INPUT and OUTPUT are numbers of open pipes
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys


def main(path: str, fingerprint: str, source: int, target: int) -> None:
    """Serve launches until the input ends. A frame F says that the library is no firmware, or not one of this model."""
    try:
        library = ctypes.CDLL(path)
        found = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "tw_fingerprint"))).decode()
    except (OSError, ValueError) as error:
        reason = f"it is no firmware: {error}"
    else:
        if found == fingerprint:
            library.tw_serve(source, target)
        reason = "it was compiled for another version of the model; compile it again"
    text = reason.encode()
    os.write(target, struct.pack("<cI", b"F", len(text)) + text)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
