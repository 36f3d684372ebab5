"""Large arrays on huge pages: Linux hands out memory page by page, and a thousand small pages take milliseconds."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def empty_on_huge_pages(*shape: int, dtype: torch.dtype) -> Tensor:
    """An uninitialised tensor on the CPU, from NumPy, which asks Linux for huge pages where an array is large.

    Example:
        >>> empty_on_huge_pages(2, 3, dtype=torch.float32).shape
        torch.Size([2, 3])
    """
    if dtype not in (torch.float32, torch.float64):
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(np.empty(shape, dtype=np.float32 if dtype == torch.float32 else np.float64))
