"""`python -m mv_st` is `mv-st`."""

from __future__ import annotations

import sys

from .cli import main

sys.exit(main())
