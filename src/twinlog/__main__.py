"""`python -m twinlog` is `twinlog`."""

import sys

from twinlog.cli.twinlog import main

if __name__ == "__main__":
    sys.exit(main())
