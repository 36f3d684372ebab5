"""The model that comes with the package, for a start without training."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

SHIPPED_MODEL = files("mv_st") / "data" / "model"


def load_shipped_model() -> SentenceTransformer:
    """Load the English model that comes with the package.

    A `small` model of general English, made compact; its model card, beside it in `mv_st/data/model`, says what it was
    trained on and what it reaches. For text of your own domain or language, `train` a model on that text.

    Returns:
        The model.

    Example:
        >>> model = load_shipped_model()
        >>> vectors = model.encode(["They had nothing to eat.", "We were hungry.", "The ship left the port."])
        >>> bool(vectors[0] @ vectors[1] > vectors[0] @ vectors[2])
        True
    """
    from sentence_transformers import SentenceTransformer

    with as_file(SHIPPED_MODEL) as folder:
        return SentenceTransformer(str(folder))
