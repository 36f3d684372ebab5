"""A SentenceTransformer as the evaluation sees it: named, encoding each sentence once, in a stated component mode."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mv_st.errors import UserError
from mv_st.progress import progress_bar

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from sentence_transformers import SentenceTransformer

Components = Literal["stored", "transductive", "transductive-joint", "adapted"]
Representation = Literal["similarity", "transfer"]
Vectors = NDArray[np.float32]

CACHE_BYTES = 2 * 1024**3
_CHUNK = 4096  # sentences handed to the model at once: bounds memory, and lets progress be seen


class EvaluationEncoder:
    """Wraps a model for `evaluate` and for `mteb.evaluate`.

    mteb stores scores under a model's name, and stores all models without a name under the same one: the next such
    model is then given the scores of the last. This wrapper has a name, and a revision computed from the weights.

    Args:
        model: Any SentenceTransformer.
        name: Name in tables and in mteb's cache.
        components: Where the principal components come from that an mv_st model removes: `"stored"` in the model (what
            a user of the model gets), or fitted on the sentences that are scored: `"transductive"` on each side of
            each dataset or split apart (as the paper's evaluation does), `"transductive-joint"` on all of a task.
            Whitening is part of what is stored; these two do without, as the paper does. `"adapted"` is what
            `adapt_components` makes of the stored ones, on each side of each dataset apart.
        n_components: Number of components to fit in the two transductive modes; as many as the model stores if not
            given.
        view: Evaluate one view of an mv_st model alone.
        batch_size: Sentences per forward pass.
        cache_bytes: Memory for vectors that may be asked for again.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        name: str,
        components: Components = "stored",
        n_components: int | None = None,
        view: str | None = None,
        batch_size: int = 128,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        if components not in get_args(Components):
            raise UserError(f"components must be one of {', '.join(get_args(Components))}, not {components!r}")
        self.is_multi_view = has_component_removal(model)
        if not self.is_multi_view and components != "stored":
            raise UserError(f"{name}: {components} components do not apply, the model has no PCRemoval module")
        if not self.is_multi_view and view is not None:
            raise UserError(f"{name}: view {view!r} does not apply, the model is not an mv_st model")
        self.model = model
        self.name = name
        self.components = components
        if n_components is None and self.is_multi_view:
            from mv_st.components import removal_module

            n_components = removal_module(model).n_components
        self.n_components = n_components or 0
        self.view = view
        self.batch_size = batch_size
        self._cache = _VectorCache(cache_bytes)
        self._meta: ModelMeta | None = None

    @property
    def component_mode(self) -> str:
        """What tables say about components: `none`, `stored`, `stored, whitened`, `transductive (1)` and so on."""
        if not self.is_multi_view:
            return "none"
        if self.components == "adapted":
            return "adapted"
        if self.components != "stored":
            return f"{self.components} ({self.n_components})"
        from mv_st.components import removal_module

        return "stored, whitened" if removal_module(self.model).whitening else "stored"

    def encode_groups(self, groups: Sequence[Sequence[str]], representation: Representation) -> list[Vectors]:
        """Encode several lists of sentences, for example the two sides of a dataset.

        Args:
            groups: The lists of a task; components are fitted apart in `transductive` mode, and together in
                `transductive-joint`.
            representation: `"similarity"` or `"transfer"`; other models than ours have one representation only.

        Returns:
            An array of shape (sentences, width) per list.
        """
        if self.components == "stored":
            return [self._encode_stored(group, representation) for group in groups]
        if self.components != "transductive-joint":
            return [self._encode_fitted(group, representation) for group in groups]
        ends = np.cumsum([len(group) for group in groups])[:-1]
        everything = self._encode_fitted([sentence for group in groups for sentence in group], representation)
        return np.split(everything, ends)

    def encode(self, inputs: Any, *, hf_split: str = "", hf_subset: str = "", **kwargs: Any) -> Vectors:
        """The encoder interface of mteb, for tasks other than ours: batches of `{"text": [...]}`."""
        sentences = [text for batch in inputs for text in batch["text"]]
        return self.encode_groups([sentences], "similarity")[0]

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Similarity of all pairs, as the model defines it."""
        return self.model.similarity(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Similarity of corresponding vectors, as the model defines it."""
        return self.model.similarity_pairwise(embeddings1, embeddings2)

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """Name and revision under which mteb may cache scores."""
        if self._meta is None:
            from mteb.models import ModelMeta

            mode = f"{self.component_mode}-{self.view or 'all-views'}"
            revision = hashlib.sha256(f"{fingerprint(self.model)} {mode}".encode()).hexdigest()[:20]
            name = self.name if "/" in self.name else f"local/{self.name}"
            self._meta = ModelMeta.create_empty({"name": name, "revision": revision})
        return self._meta

    def _encode_fitted(self, sentences: Sequence[str], representation: Representation) -> Vectors:
        from mv_st.components import encode_adapted, encode_transductive

        if self.components == "adapted":
            return encode_adapted(self.model, list(sentences), representation, self.view)
        return encode_transductive(self.model, list(sentences), self.n_components, representation, self.view)

    def _encode_stored(self, sentences: Sequence[str], representation: Representation) -> Vectors:
        if not sentences:
            raise UserError("no sentences to encode")
        options: dict[str, Any] = {}
        if self.is_multi_view:
            options = {"representation": representation, "view": self.view}
        key = representation if self.is_multi_view else "similarity"
        rows: dict[str, list[int]] = {}
        for row, sentence in enumerate(sentences):
            rows.setdefault(sentence, []).append(row)

        result: Vectors | None = None
        known = [(sentence, vector) for sentence in rows if (vector := self._cache.get((key, sentence))) is not None]
        for sentence, vector in known:
            result = np.empty((len(sentences), len(vector)), dtype=np.float32) if result is None else result
            result[rows.pop(sentence)] = vector
        # Like lengths side by side, so that a chunk has little padding; the vectors do not depend on it.
        unknown = sorted(rows, key=len)
        with progress_bar(total=len(unknown), desc=f"{self.name}: encoding", unit="sentences") as bar:
            for start in range(0, len(unknown), _CHUNK):
                chunk = unknown[start : start + _CHUNK]
                vectors = self.model.encode(
                    chunk,
                    batch_size=self.batch_size,
                    show_progress_bar=False,
                    convert_to_numpy=True,
                    **options,
                ).astype(np.float32, copy=False)
                result = np.empty((len(sentences), vectors.shape[1]), dtype=np.float32) if result is None else result
                # Vectors that would push each other out of the cache do not go there at all.
                keep = len(unknown) * vectors[0].nbytes <= self._cache.max_bytes
                for sentence, vector in zip(chunk, vectors, strict=True):
                    result[rows[sentence]] = vector
                    if keep:
                        self._cache.put((key, sentence), vector)
                bar.update(len(chunk))
        assert result is not None
        return result


class _VectorCache:
    """Vectors by sentence; the oldest go when the memory is used up."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._vectors: OrderedDict[tuple[str, str], Vectors] = OrderedDict()

    def get(self, key: tuple[str, str]) -> Vectors | None:
        return self._vectors.get(key)

    def put(self, key: tuple[str, str], vector: Vectors) -> None:
        self._vectors[key] = vector.copy()  # a view would keep the whole batch alive
        self.bytes += vector.nbytes
        while self.bytes > self.max_bytes:
            _, oldest = self._vectors.popitem(last=False)
            self.bytes -= oldest.nbytes


def as_mteb_model(model: SentenceTransformer, name: str, **options: Any) -> EvaluationEncoder:
    """Wrap a model for a direct call of `mteb.evaluate`, so that mteb's cache cannot mix it up with another model.

    Args:
        model: Any SentenceTransformer.
        name: Name under which mteb stores scores.
        options: Passed on to `EvaluationEncoder`.
    """
    return EvaluationEncoder(model, name, **options)


def has_component_removal(model: object) -> bool:
    """Whether this is an mv_st model: one that removes principal components."""
    from torch import nn

    from mv_st.modules import PCRemoval

    return isinstance(model, nn.Module) and any(isinstance(module, PCRemoval) for module in model.modules())


def fingerprint(model: SentenceTransformer) -> str:
    """A digest of the architecture and all weights."""
    import torch

    digest = hashlib.sha256(repr(model).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        # Seen as bytes, because numpy has no bfloat16.
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
