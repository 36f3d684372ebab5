"""The model card: the host library's own, with a snippet that works for our models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sentence_transformers.sentence_transformer.model_card import SentenceTransformerModelCardData

if TYPE_CHECKING:
    from sentence_transformers.base.model import BaseModel

INSTALL = """This model also needs mv-st, which defines its modules:

```bash
pip install -U mv-st
```
"""


@dataclass
class MultiViewModelCardData(SentenceTransformerModelCardData):
    """Model card data whose usage snippet installs and imports mv_st."""

    def generate_usage_snippet(self) -> str:
        """Return the host's snippet with the import that lets the model load without a flag."""
        snippet = super().generate_usage_snippet()
        first_import = "from sentence_transformers import"
        return INSTALL + snippet.replace(first_import, f"import mv_st  # knows the modules\n{first_import}", 1)


def use_our_model_card(model: BaseModel) -> None:
    """Turn the stock card data of a model, new or loaded, into ours; leave card data of another kind alone."""
    if type(model.model_card_data) is SentenceTransformerModelCardData:
        model.model_card_data.__class__ = MultiViewModelCardData
