"""`python -m tilewright` is the command `tilewright`."""

import sys

from tilewright.cli import main

sys.exit(main())
