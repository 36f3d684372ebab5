"""The model card of a saved model: how to load it, what it gives, training, results, limits; no text of the corpus."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from huggingface_hub import ModelCard, ModelCardData
from huggingface_hub.repocard_data import EvalResult
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.model_card import SentenceTransformerModelCardData

from mv_st import ContiguousBatchSampler, MultiViewLoss, build_model
from mv_st.card_results import read_card_results
from mv_st.errors import UserError
from mv_st.evaluation.results import EvaluationResults, ModelScores, TransferScores
from mv_st.evaluation.scores import Correlation, STSScores
from mv_st.model_card import OURS, MultiViewModelCardData, write_model_card
from mv_st.vectors import WordVectors

RECORD: dict[str, Any] = {
    "preset": "small",
    "settings": {"hidden_size": 256, "views": ["gru", "linear"], "batch_size": 512},
    "seed": 7,
    "vectors": {"source": "glove.vec.gz", "words": 33849, "dimension": 300},
    "processes": 2,
    "corpus": {"sources": ["books.txt", "letters.txt"], "sentences": 2542574},
    "threads": 4,
    "steps": 771,
    "sentences_seen": 394752,
    "seconds": {"preparation": 80.2, "training": 1201.3},
    "components_fitted_on": 20000,
    "versions": {"python": "3.11.7", "mv-st": "0.1.0"},
    "history": [
        {"step": 20, "loss": 6.0},
        {"step": 500, "eval_stsb-validation_pearson": 0.69461, "eval_stsb-validation_spearman": 0.7},
    ],
}

PATTERN = r"""---
(?P<metadata>.*?)
---

<!-- Written by mv-st\. .* -->

# Multi-view sentence embeddings

.*the views gru and linear read the same frozen word vectors.*
.*arXiv 1805\.07443.*

## Usage

```bash
pip install mv-st
```

```python
import mv_st .*
from sentence_transformers import SentenceTransformer

model = SentenceTransformer\("sentence_transformers_model_id"\)
# or, .*
# model = SentenceTransformer\("sentence_transformers_model_id", trust_remote_code=True\)
.*
print\(vectors\.shape\)  # \(3, 8\)
.*representation="transfer".*
print\(features\.shape\)  # \(3, 56\)
.*view="linear".*
```

\| call \| vectors \| width \|
.*\| 8 \|
\| `model\.encode\(sentences, view="gru"\)` .*\| 8 \|
\| `model\.encode\(sentences, view="linear"\)` .*\| 8 \|
\| `model\.encode\(sentences, representation="transfer"\)` .*\| 56 \|
.*
## Training
.*
\| Training text \| books\.txt, letters\.txt: 2,542,574 sentences \|
\| Word vectors \| glove\.vec\.gz: 33,849 words, 300 dimensions \|
\| Preset \| small \|
\| Length \| 771 steps, 394,752 sentences read \|
\| Time \| 1,201 seconds, 2 process\(es\) with 4 CPU thread\(s\) \|
\| Components \| fitted on 20,000 sentences \|
\| Seed \| 7 \|
\| Versions \| python 3\.11\.7, mv-st 0\.1\.0 \|

Settings: `hidden_size` 256, `views` \["gru", "linear"\], `batch_size` 512\.

## Evaluation

.*STS-B validation.*
\| during training, step 500 of 771 \| 69\.5 \| 70\.0 \|

## Limits

\* Words, not word pieces: 45 words are known; a word without a vector counts as a zero vector.*
\* Languages written without spaces.*
\* Text beyond 512 words is cut\.
\* .*

## Licence

.*Apache-2\.0.*

## Architecture

```
SentenceTransformer\(.*
```

## Citation

```bibtex
@article\{tang2018multiview,.*
\}
```"""


def card_of(model: SentenceTransformer, folder: Path, record: dict[str, Any] | None = None) -> str:
    folder.mkdir(exist_ok=True)
    if record is not None:
        (folder / "training.json").write_text(json.dumps(record))
    model.save_pretrained(str(folder))
    return (folder / "README.md").read_text(encoding="utf-8")


def test_matches_the_pattern(model: SentenceTransformer, tmp_path: Path) -> None:
    card = card_of(model, tmp_path, RECORD)
    assert re.fullmatch(PATTERN, card, re.DOTALL), card
    assert "yesterday" not in card, "the vocabulary"


def test_the_metadata_is_valid(model: SentenceTransformer, tmp_path: Path) -> None:
    """By the client's own reading of it, there and back."""
    card = ModelCard(card_of(model, tmp_path, RECORD))
    data: Any = card.data
    assert data.library_name == "sentence-transformers"
    assert data.pipeline_tag == "sentence-similarity"
    assert {"sentence-transformers", "mv-st"} <= set(data.tags)
    assert data.model_name == "Multi-view sentence embeddings"
    assert [(result.metric_type, result.metric_value) for result in data.eval_results] == [
        ("pearsonr", 0.6946),
        ("spearmanr", 0.7),
    ]
    again = ModelCardData(**data.to_dict() | {"ignore_metadata_errors": False})
    assert again.eval_results == data.eval_results
    assert all(result.dataset_split == "validation" for result in data.eval_results)
    assert "model-index" not in ModelCard(card_of(model, tmp_path / "untrained")).data.to_dict()


def snippet(card: str) -> str:
    return card.partition("```python\n")[2].partition("```")[0]


def test_the_snippet_runs(model: SentenceTransformer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = snippet(card_of(model, tmp_path)).replace("sentence_transformers_model_id", str(tmp_path))
    other = code.replace("\nmodel =", "\n# model =", 1).replace("\n# model =", "\nmodel =", 2).split("\n", 1)[1]
    assert other.count("\nmodel =") == 2
    for text in (code, other):
        exec(text, {})
        promised = re.findall(r"print\(.*\)  # (.*)", text)
        assert capsys.readouterr().out.splitlines() == promised


def test_of_other_models(vectors: WordVectors, fasttext_file: tuple[Path, Any], tmp_path: Path) -> None:
    one = card_of(build_model(vectors, hidden_size=4, views=["gru"], max_seq_length=None), tmp_path / "one")
    assert "one view, gru, reads frozen word vectors" in one
    assert "view=" not in one
    assert "Text of any length is read" in one
    assert "This model has not been trained" in one
    assert "No results were recorded" in one
    subwords = card_of(build_model(fasttext_file[0], hidden_size=4, oov="subword"), tmp_path / "subwords")
    assert "an unknown word is composed from its character n-grams" in subwords
    three = card_of(build_model(vectors, hidden_size=4, views=["gru", "gru", "linear"]), tmp_path / "three")
    assert "the views gru_1, gru_2 and linear read" in three
    assert '"gru_1" or "gru_2" or "linear"' in three


def test_does_not_quote_the_corpus(vectors: WordVectors, tmp_path: Path) -> None:
    """After training by the host library's trainer, whose own card does."""
    secrets = [f"secret number {index} of the cat" for index in range(32)]
    corpus = Dataset.from_dict({"sentence": secrets, "label": [0] * 32})
    model = build_model(vectors, hidden_size=4, seed=0)
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path / "run"),
        per_device_train_batch_size=16,
        max_steps=2,
        batch_sampler=ContiguousBatchSampler,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
    )
    loss = MultiViewLoss(model)
    SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=corpus, eval_dataset=corpus, loss=loss
    ).train()
    card = card_of(model, tmp_path / "model")
    assert "secret" not in card
    assert "32 rows of sentence, label; loss MultiViewLoss" in card
    assert "`per_device_train_batch_size` 16" in card
    assert "generated_from_trainer" in card
    # The host library's template, as used beside code that was copied.
    model.model_card_data.template_path = SentenceTransformerModelCardData.template_path
    card = card_of(model, tmp_path / "host")
    assert "## Training Details" in card
    assert "secret" not in card


def test_a_loaded_model_that_is_trained_on_gets_one_too(model: SentenceTransformer, tmp_path: Path) -> None:
    card_of(model, tmp_path / "one")
    loaded = SentenceTransformer(str(tmp_path / "one"))
    loaded.model_card_data.add_tags("generated_from_trainer")  # makes the host write a new card
    assert "import mv_st" in card_of(loaded, tmp_path / "two")


def test_says_what_the_user_wrote(model: SentenceTransformer, tmp_path: Path) -> None:
    data = SentenceTransformerModelCardData(language="de", license="mit", model_name="Meins", model_id="ich/meins")
    with_data = SentenceTransformer(modules=list(model), model_card_data=data)
    assert isinstance(with_data.model_card_data, MultiViewModelCardData)
    card = card_of(with_data, tmp_path)
    assert "# Meins" in card
    assert "- de" in card
    assert "license: mit" in card
    assert "The model: mit." in card
    assert 'SentenceTransformer("ich/meins")' in card


def test_the_name_follows_the_id(model: SentenceTransformer, tmp_path: Path) -> None:
    assert "# Multi-view sentence embeddings" in card_of(model, tmp_path / "one")
    model.model_card_data.set_model_id("ann/model")
    assert "# ann/model" in card_of(model, tmp_path / "two")


def test_results_of_evaluators_of_the_user(model: SentenceTransformer, tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    left, right = ["the cat", "a dog", "the sky"], ["the bird", "a tree", "red"]
    model.evaluate(EmbeddingSimilarityEvaluator(left, right, [0.1, 0.5, 0.9], name="mine"))
    card = card_of(model, tmp_path)
    assert "mine:\n\n| Metric" in card
    assert ModelCard(card).data.eval_results[0].dataset_name == "mine"  # type: ignore[attr-defined, index]


def test_a_damaged_record_is_no_reason_to_have_no_card(model: SentenceTransformer, tmp_path: Path) -> None:
    for number, text in enumerate(("{", "[1]", "{}", '{"preset": "small", "corpus": {}}')):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "training.json").write_text(text)
        assert "## Training" in card_of(model, folder)


def test_leaves_other_models_alone(vectors: WordVectors) -> None:
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    from mv_st.modules.word_tokenizer import build_tokenizer

    static = StaticEmbedding(build_tokenizer(vectors.words), embedding_dim=4)
    assert type(SentenceTransformer(modules=[static]).model_card_data) is SentenceTransformerModelCardData


class TestWriteAnew:
    """`write_model_card` for a model that was loaded, whose card the host library copies word for word."""

    @pytest.fixture
    def loaded(self, model: SentenceTransformer, tmp_path: Path) -> SentenceTransformer:
        (tmp_path / "first").mkdir()
        (tmp_path / "first" / "training.png").write_bytes(b"a picture")
        card = card_of(model, tmp_path / "first", RECORD)
        assert "(training.png)" in card
        edited = card.replace("---\n", "---\nlicense: mit\nlanguage: [de]\n", 1)
        (tmp_path / "first" / "README.md").write_text(edited, encoding="utf-8")
        return SentenceTransformer(str(tmp_path / "first"))

    def test_keeps_what_only_the_old_card_knows(self, loaded: SentenceTransformer, tmp_path: Path) -> None:
        folder = tmp_path / "second"
        card_of(loaded, folder)
        loaded.model_card_data.set_model_id("ann/model")
        loaded.model_card_data.self_contained = True  # type: ignore[attr-defined]
        write_model_card(loaded, folder)
        card = (folder / "README.md").read_text(encoding="utf-8")
        assert 'SentenceTransformer("ann/model", trust_remote_code=True)' in card
        assert "pip install mv-st" not in card
        assert "books.txt, letters.txt: 2,542,574 sentences" in card
        assert "`batch_size` 512." in card
        assert "training.png" not in card, "it was not copied"
        assert "step 500 of 771 | 69.5 | 70.0 |" in card
        data: Any = ModelCard(card).data
        assert (data.license, data.language, data.model_name) == ("mit", ["de"], "ann/model")
        assert data.eval_results[0].metric_value == 0.6946

    def test_new_results_replace_old_ones(self, loaded: SentenceTransformer, tmp_path: Path) -> None:
        card_of(loaded, tmp_path / "second")
        result = EvalResult("sentence-similarity", "mine", "Mine", "pearsonr", 0.5)
        loaded.model_card_data.evaluation = (result,)  # type: ignore[attr-defined]
        loaded.model_card_data.evaluation_tables = "A table."  # type: ignore[attr-defined]
        write_model_card(loaded, tmp_path / "second")
        card = (tmp_path / "second" / "README.md").read_text(encoding="utf-8")
        assert "## Evaluation\n\nA table.\n\n## Limits" in card
        assert ModelCard(card).data.eval_results == [result]  # type: ignore[attr-defined]

    def test_leaves_the_text_of_somebody_else(self, loaded: SentenceTransformer, tmp_path: Path) -> None:
        card_of(loaded, tmp_path / "second")
        path = tmp_path / "second" / "README.md"
        path.write_text(path.read_text(encoding="utf-8").replace(OURS, "<!-- "), encoding="utf-8")
        before = path.read_text(encoding="utf-8")
        write_model_card(loaded, tmp_path / "second")
        assert path.read_text(encoding="utf-8") == before


class TestResultsFile:
    def results(self, *names: str, view: str | None = None) -> EvaluationResults:
        score = Correlation(0.5717377, 0.57268, 3108)
        tasks = {
            "sts13": STSScores({"FNWN": score}, score, score, score, absent=["SMT"]),
            "mrpc": TransferScores("SentEval", 0.7312, 0.812, None, None, 0.7, [1.0], 1725, 56),
            "tickets": STSScores({"all": score}, score, score, score),
        }
        models = [ModelScores(name, "stored", view, tasks) for name in names]  # type: ignore[arg-type]
        return EvaluationResults(models, {}, [], {})

    def test_numbers_and_tables(self, tmp_path: Path) -> None:
        self.results("my-model").save(tmp_path / "results.json")
        entries, tables = read_card_results(tmp_path / "results.json")
        found = [(entry.dataset_name, entry.metric_type, entry.metric_value) for entry in entries]
        assert found == [
            ("STS13", "pearsonr", 0.5717),
            ("STS13", "spearmanr", 0.5727),
            ("MRPC", "accuracy", 0.7312),
            ("MRPC", "f1", 0.812),
            ("tickets", "pearsonr", 0.5717),
            ("tickets", "spearmanr", 0.5727),
        ]
        assert entries[0].metric_name == (
            "Pearson's r, unweighted mean over the datasets, without SMT (stored components)"
        )
        assert "| this model | stored | 57.2† | 57.2 |" in tables
        assert "73.1 / 81.2" in tables

    def test_in_a_card(self, model: SentenceTransformer, tmp_path: Path) -> None:
        self.results("my-model").save(tmp_path / "results.json")
        data: Any = model.model_card_data
        data.evaluation, data.evaluation_tables = read_card_results(tmp_path / "results.json")
        card = card_of(model, tmp_path / "model", RECORD)
        assert tuple(ModelCard(card).data.eval_results) == data.evaluation  # type: ignore[attr-defined, arg-type]
        assert "metrics:\n- accuracy\n- f1\n- pearsonr\n- spearmanr\n" in card
        assert "| this model | stored |" in card
        assert "during training" not in card

    def test_chooses_the_model(self, tmp_path: Path) -> None:
        path = tmp_path / "results.json"
        self.results("one", "two").save(path)
        assert read_card_results(path, "folder/two")[0]
        with pytest.raises(UserError, match="no results of folder/three as a whole; it has results of one, two"):
            read_card_results(path, "folder/three")
        with pytest.raises(UserError, match="no results of this model"):
            read_card_results(path)
        self.results("one", view="gru").save(path)
        with pytest.raises(UserError, match=r"it has results of one \[gru\]"):
            read_card_results(path, "one")

    def test_another_file(self, tmp_path: Path) -> None:
        (tmp_path / "results.json").write_text("{}")
        with pytest.raises(UserError, match="not a file of evaluation results"):
            read_card_results(tmp_path / "results.json")
