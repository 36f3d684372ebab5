"""The model card: how to load the model, what it gives, how it was trained, how good it is and where it ends.

It never quotes the text that a model was trained on, as the host library's own card does.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import EvalResult, ModelCard
from huggingface_hub.repocard_data import eval_results_to_model_index
from sentence_transformers.base.model_card import generate_model_card
from sentence_transformers.sentence_transformer.model_card import SentenceTransformerModelCardData

from .modules.view import View

if TYPE_CHECKING:
    from sentence_transformers.base.model import BaseModel

OURS = "<!-- Written by mv-st."
"""A card with this in it may be written anew; any other card is somebody's own text."""

TEMPLATE = Path(__file__).parent / "data" / "model_card.md"

CITATION = """@article{tang2018multiview,
    title = {Multi-view Sentence Representation Learning},
    author = {Shuai Tang and Virginia R. de Sa},
    journal = {arXiv preprint arXiv:1805.07443},
    year = {2018},
}"""

INSTALLED = """```bash
pip install mv-st
```

```python
import mv_st  # makes its modules known to sentence-transformers
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{model_id}")
# or, where mv-st is installed but not imported:
# model = SentenceTransformer("{model_id}", trust_remote_code=True)
{examples}
```"""

SELF_CONTAINED = """The code of its modules is part of this model: `modeling_mv_st.py` and the files that it imports.
`trust_remote_code=True` runs that code; mv-st does not have to be installed. Where it is installed and imported, its
own modules are used, and the flag is not needed.

```bash
pip install "sentence-transformers>=6.0"
```

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{model_id}", trust_remote_code=True)
{examples}
```"""

EXAMPLES = """
sentences = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
vectors = model.encode(sentences)  # for similarity
print(vectors.shape)  # (3, {width})
print(model.similarity(vectors, vectors).shape)  # torch.Size([3, 3])
features = model.encode(sentences, representation="transfer")  # for a classifier on top
print(features.shape)  # (3, {transfer_width})"""

FACTS = {
    "Training text": "{sources}: {corpus[sentences]:,} sentences",
    "Word vectors": "{vectors[source]}: {vectors[words]:,} words, {vectors[dimension]} dimensions",
    "Preset": "{preset}",
    "Length": "{steps:,} steps, {sentences_seen:,} sentences read",
    "Time": "{seconds[training]:,.0f} seconds, {processes} process(es) with {threads} CPU thread(s)",
    "Components": "fitted on {components_fitted_on:,} sentences",
    "Adapted": "to {adapted_to:,} sentences",
    "Seed": "{seed}",
    "Versions": "{versions}",
}
"""What the card says of a training record."""

ONE_VIEW = """
alone = model.encode(sentences, view="{view}")  # one view alone: {views}"""


@dataclass
class MultiViewModelCardData(SentenceTransformerModelCardData):
    """What the card of an mv_st model says.

    Attributes:
        training: What `training.json` says; if not set, it is read from the folder that the model is saved to.
        evaluation: Results for the metadata of the card, see `mv_st.card_results`.
        evaluation_tables: The same as Markdown.
        self_contained: Whether the code of the modules lies beside the weights.
    """

    training: dict[str, Any] | None = None
    evaluation: tuple[EvalResult, ...] = ()
    evaluation_tables: str = ""
    self_contained: bool = False

    # Code that was copied beside a model has no template at hand; there, the host library's has to do.
    template_path: Path = field(
        default=TEMPLATE if TEMPLATE.exists() else SentenceTransformerModelCardData.template_path,
        init=False,
        repr=False,
    )

    def set_widget_examples(self, dataset: Any) -> None:
        """Choose no sentences of the corpus as examples."""

    def run_usage_snippet(self) -> None:
        """Compute nothing: stock sentences are as good as any, and may all be unknown words."""

    def _render_examples_table(self, dataset_info: dict[str, Any], asset_counter: int = 0) -> tuple[str, int]:
        return "", asset_counter  # no rows of the corpus either

    def get_default_model_name(self) -> str:
        """Return the id of the model if it has one."""
        return self.model_id or "Multi-view sentence embeddings"

    def generate_usage_snippet(self) -> str:
        """Return how to install, load and call the model."""
        widths, views = self._widths(), self._views()
        examples = EXAMPLES.format(width=widths["similarity"], transfer_width=widths["transfer"])
        if len(views) > 1:
            examples += ONE_VIEW.format(view=views[-1].name, views=" or ".join(f'"{view.name}"' for view in views))
        text = SELF_CONTAINED if self.self_contained else INSTALLED
        return text.format(model_id=self.model_id or "sentence_transformers_model_id", examples=examples)

    def to_dict(self) -> dict[str, Any]:
        """Everything that the template shows, and the metadata."""
        chosen_name = self.model_name
        data = super().to_dict()
        self.model_name = chosen_name  # a default name changes with the id
        for dataset in (*data["train_datasets"], *data["eval_datasets"]):
            dataset.pop("examples", None)
        record = self._record()
        data["tags"] = [*data["tags"], *({"mv-st"} - set(data["tags"]))]
        data |= self._description() | _training(record, data) | {"citation": CITATION, "limits": self._limits()}
        if self.save_dir is not None and (Path(self.save_dir) / "training.png").exists():
            data["training_picture"] = "training.png"
        results, tables = (self.evaluation, self.evaluation_tables) if self.evaluation else _last_evaluation(record)
        if results:
            data["metrics"] = sorted({result.metric_type for result in results})
            data["model-index"] = eval_results_to_model_index(data["model_name"], list(results))
            data["evaluation_tables"] = tables
        elif "eval_metrics" in data:  # of evaluators that the user has called
            data["evaluation_tables"] = "\n\n".join(
                f"{metrics['dataset_name'] or metrics['description']}:\n\n{metrics['table'].strip()}"
                for metrics in data["eval_metrics"]
            )
        self._cached_dict = data
        return data

    def _record(self) -> dict[str, Any] | None:
        if self.training is not None or self.save_dir is None:
            return self.training
        try:
            record = json.loads((Path(self.save_dir) / "training.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) else None

    def _views(self) -> list[View]:
        return [module for module in self.model or [] if isinstance(module, View)]

    def _widths(self) -> dict[str, Any]:
        views = self._views()
        transfer = sum(view.widths["transfer"] for view in views)
        return {"similarity": self._get_snippet_output_dimensionality(), "transfer": transfer}

    def _description(self) -> dict[str, Any]:
        views, widths = self._views(), self._widths()
        names = [view.name for view in views]
        calls = [("model.encode(sentences)", "for similarity: views normalised and added", widths["similarity"])]
        if len(views) == 1:
            calls = [("model.encode(sentences)", "for similarity, normalised", widths["similarity"])]
        else:
            calls += [
                (f'model.encode(sentences, view="{view.name}")', "one view alone", view.widths["similarity"])
                for view in views
            ]
        calls.append(
            (
                'model.encode(sentences, representation="transfer")',
                "features for a classifier: pooled states of all views side by side",
                widths["transfer"],
            )
        )
        reading = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
        plural = f"the views {reading} read the same frozen word vectors and learn from each other"
        licence = f"The model: {self.license}." if self.license else "No licence was stated for the model itself."
        return {
            "calls": calls,
            "reading": plural if len(names) > 1 else f"one view, {reading}, reads frozen word vectors",
            "licence_note": f"{licence} mv-st, which defines its modules: Apache-2.0. "
            "Terms of the word vectors and of the training text may apply as well.",
        }

    def _limits(self) -> list[str]:
        words: Any = self.model[0] if self.model is not None else None
        unknown = (
            "an unknown word is composed from its character n-grams"
            if getattr(words, "oov", "zero") == "subword"
            else "a word without a vector counts as a zero vector, and a text of such words is a zero vector"
        )
        length = getattr(words, "max_seq_length", None)
        return [
            f"Words, not word pieces: {getattr(words, 'vocab_size', 1) - 1:,} words are known; {unknown}.",
            "Languages written without spaces (Chinese, Japanese, Thai, ...): every character counts as a word.",
            f"Text beyond {length} words is cut." if length else "Text of any length is read to its end.",
            "It knows what stood near what in its training text. It has seen no labels, and repeats the biases of "
            "that text; measure it on your own task before you rely on it.",
        ]


def use_our_model_card(model: BaseModel) -> None:
    """Turn the stock card data of a model, new or loaded, into ours; leave card data of another kind alone."""
    if type(model.model_card_data) is SentenceTransformerModelCardData:
        model.model_card_data.__class__ = MultiViewModelCardData


def write_model_card(model: BaseModel, directory: Path) -> None:
    """Bring the card that was saved with a model up to date, unless it is somebody's own text.

    What only the old card knows (licence and language, training and results of a model that was loaded) is kept.

    Args:
        model: The model.
        directory: Folder in which `model.save_pretrained` has written `README.md`.
    """
    path, data = directory / "README.md", model.model_card_data
    old = path.read_text(encoding="utf-8") if path.exists() else OURS
    if OURS not in old or not isinstance(data, MultiViewModelCardData):
        return
    data.save_dir = str(directory)
    metadata: Any = ModelCard(old, ignore_metadata_errors=True).data
    data.license = data.license or metadata.license
    data.language = data.language or metadata.language or []
    if not data.evaluation and metadata.eval_results:
        data.evaluation = tuple(metadata.eval_results)
        data.evaluation_tables = _section(old, "Evaluation")
    new = generate_model_card(model)
    known = _section(old, "Training")
    if known and data._record() is None and not data.train_datasets:
        if not (directory / "training.png").exists():
            known = re.sub(r"\n+!\[.*\]\(training\.png\)", "", known)
        new = new.replace(_section(new, "Training"), known)
    path.write_text(new, encoding="utf-8")


def _section(card: str, title: str) -> str:
    r"""What is written under a heading.

    Example:
        >>> _section("# A\n\n## Training\n\nOn books.\n\n## Limits\n", "Training")
        'On books.'
    """
    match = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", card, re.DOTALL | re.MULTILINE)
    return match[1].strip() if match else ""


def _training(record: dict[str, Any] | None, data: dict[str, Any]) -> dict[str, Any]:
    """Facts about the training, from `training.json` or else from what the host library's trainer has noted."""
    if record is None:
        facts = [
            (dataset.get("name") or "Training data", f"{dataset.get('size', 0):,} rows of {_loss(dataset)}")
            for dataset in data["train_datasets"]
        ]
        return {"training_facts": facts, "training_settings": list(data["non_default_hyperparameters"].items())}
    known = record | {
        "sources": ", ".join(record.get("corpus", {}).get("sources", [])),
        "versions": ", ".join(f"{name} {version}" for name, version in record.get("versions", {}).items()),
    }
    facts = []
    for what, text in FACTS.items():
        with contextlib.suppress(LookupError):  # a record of another version may say less
            facts.append((what, text.format(**known)))
    settings = [(name, json.dumps(value)) for name, value in record.get("settings", {}).items()]
    return {"training_facts": facts, "training_settings": settings}


def _loss(dataset: dict[str, Any]) -> str:
    columns = ", ".join(re.sub("<.*?>", "", column) for column in dataset.get("columns", []))
    return f"{columns}; loss {dataset['loss']['fullname'].rpartition('.')[2]}" if "loss" in dataset else columns


def _last_evaluation(record: dict[str, Any] | None) -> tuple[tuple[EvalResult, ...], str]:
    """Scores of the last evaluation during training, for the metadata and as a table."""
    logs = [entry for entry in (record or {}).get("history", []) if "eval_stsb-validation_pearson" in entry]
    if not logs or record is None or "adapted_to" in record:  # scored before it was adapted
        return (), ""
    when = f"step {logs[-1]['step']:,} of {record['steps']:,}"
    scores = {
        "pearsonr": ("Pearson's r", logs[-1]["eval_stsb-validation_pearson"]),
        "spearmanr": ("Spearman's rho", logs[-1]["eval_stsb-validation_spearman"]),
    }
    results = tuple(
        EvalResult(
            task_type="sentence-similarity",
            task_name="Semantic Textual Similarity",
            dataset_type="mteb/stsbenchmark-sts",
            dataset_name="STS-B",
            dataset_split="validation",
            metric_type=metric,
            metric_name=f"{name}, during training ({when})",
            metric_value=round(value, 4),
        )
        for metric, (name, value) in scores.items()
    )
    row = " | ".join(f"{100 * value:.1f}" for _, value in scores.values())
    head = " | ".join(f"{name} x 100" for name, _ in scores.values())
    table = f"| STS-B validation | {head} |\n| --- | ---: | ---: |\n| during training, {when} | {row} |"
    return results, table
