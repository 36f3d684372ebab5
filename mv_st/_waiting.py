"""How threads wait for each other: asleep, so that a busy program beside us does not slow us down many times over.

Torch shares its operations among OpenMP threads, which meet at the end of each. GNU OpenMP lets those that arrive
early run in circles for a while, on a core that the late one may be waiting for; beside busy programs, encoding and
training then take several times as long as their share of the processor explains. Asleep they cost nobody anything,
and on a quiet machine as good as nothing either: see `benchmarks/results/busy_neighbour.md`.

OpenMP reads its setting once, when torch is loaded. It is therefore set here, as `mv_st` is imported, if torch is not
there yet and nobody else has chosen. To choose otherwise, set `OMP_WAIT_POLICY=active` in the environment; to profit
where torch is imported first, set it to `passive`.
"""

from __future__ import annotations

import os
import sys


def wait_passively() -> None:
    """Choose passive waiting, unless it is too late or somebody has chosen."""
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
