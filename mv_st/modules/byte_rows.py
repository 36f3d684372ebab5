"""Tables of vectors in bytes: a quarter of the space on the disk, for models that have to be small."""

from __future__ import annotations

import torch
from torch import Tensor


def to_bytes(table: Tensor) -> tuple[Tensor, Tensor]:
    """Round each row to 255 steps between minus and plus its largest number.

    Args:
        table: Shape (rows, width).

    Returns:
        The steps as int8, shape (rows, width), and the size of a step of each row, shape (rows,).

    Example:
        >>> steps, sizes = to_bytes(torch.tensor([[1.0, -0.5], [0.0, 0.0]]))
        >>> steps.tolist()
        [[127, -64], [0, 0]]
    """
    sizes = table.float().abs().amax(dim=1) / 127
    steps = (table.float() / sizes.clamp(min=1e-30).unsqueeze(1)).round()
    return steps.to(torch.int8), sizes


def from_bytes(steps: Tensor, sizes: Tensor) -> Tensor:
    """The table again, as float32; a table that has been rounded before comes back as it was, up to rounding errors.

    Example:
        >>> from_bytes(*to_bytes(torch.tensor([[2.0, -2.0, 0.0]]))).tolist()
        [[2.0, -2.0, 0.0]]
    """
    return steps.float() * sizes.unsqueeze(1)
