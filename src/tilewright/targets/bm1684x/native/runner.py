"""The process of one firmware: load the library and serve launches. The process does not import Tilewright.

python runner.py LIBRARY FINGERPRINT INPUT OUTPUT     INPUT and OUTPUT are numbers of open pipes
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys
import threading
import time


def end_with(parent: int) -> None:
    """End this process when its parent ends. A kernel in an endless loop would not notice the end of its input."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})  # the kernel's thread handles it
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def main(path: str, fingerprint: str, source: int, target: int) -> None:
    """Serve launches until the input ends. A frame F means that the library is not firmware for this simulator."""
    threading.Thread(target=end_with, args=[os.getppid()], daemon=True).start()
    try:
        library = ctypes.CDLL(path)
        built_for = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "tw_fingerprint"))).decode()
    except (OSError, ValueError) as error:
        reason = f"it is no firmware: {error}"
    else:
        if built_for == fingerprint:
            library.tw_serve(source, target)
        reason = "it was compiled for another version of the model; compile it again"
    text = reason.encode()
    os.write(target, struct.pack("<cI", b"F", len(text)) + text)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
