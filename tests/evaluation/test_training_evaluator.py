from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from toy_tasks import sentence, sts_rows, write_rows

from mv_st import ContiguousBatchSampler, MultiViewLoss, fit_components
from mv_st.components import removal_module
from mv_st.errors import UserError
from mv_st.evaluation import STSEvaluator
from mv_st.evaluation.scores import paired_cosines

NAME = "stsb-validation"


def pairs(n: int = 30) -> list[tuple[str, str, float]]:
    rows = sts_rows(np.random.default_rng(2), n)
    return [(row["sentence1"], row["sentence2"], row["score"]) for row in rows]


def literal(model: SentenceTransformer, data: list[tuple[str, str, float]], **options: str) -> tuple[float, float]:
    left, right = (model.encode([pair[side] for pair in data], **options) for side in (0, 1))
    gold = [pair[2] for pair in data]
    cosines = paired_cosines(left, right)
    return pearsonr(gold, cosines)[0], spearmanr(gold, cosines)[0]


def test_scores_are_those_of_encode(multi_view: SentenceTransformer) -> None:
    data = pairs()
    scores = STSEvaluator(data)(multi_view)
    for prefix, options in (("", {}), ("gru_", {"view": "gru"}), ("linear_", {"view": "linear"})):
        pearson, spearman = literal(multi_view, data, **options)
        assert scores[f"{NAME}_{prefix}pearson"] == pytest.approx(pearson, abs=1e-5)
        assert scores[f"{NAME}_{prefix}spearman"] == pytest.approx(spearman, abs=1e-4)
    assert len(scores) == 6


def test_components_are_fitted_anew(multi_view: SentenceTransformer) -> None:
    rng = np.random.default_rng(3)
    sample = [sentence(rng) for _ in range(30)]
    data = pairs()
    for n_components in (1, 2):
        scores = STSEvaluator(data, fit_sentences=sample, n_components=n_components)(multi_view)
        assert removal_module(multi_view).n_components == n_components
        stored = removal_module(multi_view).components("gru").clone()
        fit_components(multi_view, sample, n_components)
        torch.testing.assert_close(removal_module(multi_view).components("gru"), stored)
        assert scores[f"{NAME}_pearson"] == pytest.approx(literal(multi_view, data)[0], abs=1e-5)


def test_other_models_have_one_score(static: SentenceTransformer) -> None:
    data = pairs()
    scores = STSEvaluator(data, fit_sentences=["a film"])(static)
    assert set(scores) == {f"{NAME}_pearson", f"{NAME}_spearman"}
    assert scores[f"{NAME}_pearson"] == pytest.approx(literal(static, data)[0], abs=1e-5)


def test_mode_and_random_numbers_are_left_alone(multi_view: SentenceTransformer) -> None:
    evaluator = STSEvaluator(pairs(), fit_sentences=["the film was good", "a plot"])
    multi_view.train()
    multi_view[1].eval()
    modes = [module.training for module in multi_view.modules()]
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = random.random(), np.random.rand(), torch.rand(1).item()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    evaluator(multi_view)
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == expected
    assert [module.training for module in multi_view.modules()] == modes


def test_reads_the_validation_split(multi_view: SentenceTransformer, data_dir: Path, tmp_path: Path) -> None:
    assert len(STSEvaluator(data_dir).gold) == 30
    with pytest.raises(UserError, match=r"no validation\.jsonl"):
        STSEvaluator(tmp_path)
    write_rows(data_dir / "stsbenchmark" / "validation.jsonl", [{"sentence1": "a"}])
    with pytest.raises(UserError, match="line 1: column 'sentence2' is missing"):
        STSEvaluator(data_dir)
    with pytest.raises(UserError, match="at least two pairs"):
        STSEvaluator([("a", "b", 1.0)])


def test_a_collapsed_model_scores_zero(multi_view: SentenceTransformer) -> None:
    for parameter in multi_view.parameters():
        parameter.data.zero_()
    assert set(STSEvaluator(pairs())(multi_view).values()) == {0.0}


def test_the_trainer_calls_it_and_can_choose_by_it(multi_view: SentenceTransformer, tmp_path: Path) -> None:
    from datasets import Dataset

    rng = np.random.default_rng(0)
    sentences = [sentence(rng) for _ in range(64)]
    evaluator = STSEvaluator(pairs(), fit_sentences=sentences[:20])
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path),
        max_steps=4,
        eval_strategy="steps",
        eval_steps=2,
        save_steps=2,
        load_best_model_at_end=True,
        metric_for_best_model=f"eval_{NAME}_pearson",
        per_device_train_batch_size=16,
        batch_sampler=ContiguousBatchSampler,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = SentenceTransformerTrainer(
        model=multi_view,
        args=arguments,
        train_dataset=Dataset.from_dict({"sentence": sentences, "label": [0] * 64}),
        loss=MultiViewLoss(multi_view),
        evaluator=evaluator,
    )
    trainer.train()
    logged = [entry[f"eval_{NAME}_pearson"] for entry in trainer.state.log_history if f"eval_{NAME}_pearson" in entry]
    assert len(logged) == 2
    assert trainer.state.best_metric == pytest.approx(max(logged))


def test_every_sentence_passes_through_the_model_once(multi_view: SentenceTransformer) -> None:
    """What makes it cheap: both views and their sum come from one pass, and no sentence is encoded twice."""
    seen: list[str] = []
    preprocess = multi_view[0].preprocess

    def counting(texts: list[str], *args: object, **kwargs: object) -> object:
        seen.extend(texts)
        return preprocess(texts, *args, **kwargs)

    multi_view[0].preprocess = counting
    data = [*pairs(), *pairs()]
    STSEvaluator(data)(multi_view)
    assert sorted(seen) == sorted({text for pair in data for text in pair[:2]})
