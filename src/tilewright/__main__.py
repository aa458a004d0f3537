"""`python -m tilewright` is the command `tilewright`."""

import sys
from contextlib import suppress
from pathlib import Path

with suppress(OSError):  # the current folder was deleted
    # Python looks in the current folder first: a file there that is called like a package would take its place.
    if not sys.flags.safe_path and Path(sys.path[0]) == Path.cwd() != Path(__file__).parents[1]:
        del sys.path[0]

from tilewright.cli import main

sys.exit(main())
