from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import mteb
import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from sentence_transformers import SentenceTransformer
from sklearn.metrics import f1_score
from toy_tasks import label_rows, sts_rows, write_rows

from mv_st.components import encode_transductive
from mv_st.errors import UserError
from mv_st.evaluation import ClassificationTask, EvaluationResults, STSTask, evaluate
from mv_st.evaluation.registry import TASKS, select_tasks
from mv_st.evaluation.results import TransferScores
from mv_st.evaluation.scores import STSScores, paired_cosines
from mv_st.evaluation.senteval import MR, pair_features
from mv_st.evaluation.sts import STS12, STS13


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def sts(results: EvaluationResults, task: str, model: int = 0) -> STSScores:
    scores = results.models[model].tasks[task]
    assert isinstance(scores, STSScores)
    return scores


def transfer(results: EvaluationResults, task: str) -> TransferScores:
    scores = results.models[0].tasks[task]
    assert isinstance(scores, TransferScores)
    return scores


def test_similarity_scores_are_those_of_a_literal_computation(static: SentenceTransformer, data_dir: Path) -> None:
    results = evaluate(static, data_dir, tasks=["sts13"])
    gold, cosines, correlations = [], [], []
    for name in ("FNWN", "headlines", "OnWN"):
        rows = rows_of(data_dir / "sts13" / f"{name}.jsonl")
        left, right = (static.encode([row[side] for row in rows]) for side in ("sentence1", "sentence2"))
        predicted = [u @ v / np.linalg.norm(u) / np.linalg.norm(v) for u, v in zip(left, right, strict=True)]
        score = [row["score"] for row in rows]
        correlations.append(pearsonr(score, predicted)[0])
        assert sts(results, "sts13").datasets[name].pearson == pytest.approx(correlations[-1], abs=1e-6)
        gold += score
        cosines += predicted
    assert sts(results, "sts13").mean.pearson == pytest.approx(np.mean(correlations), abs=1e-6)
    assert sts(results, "sts13").pooled.spearman == pytest.approx(spearmanr(gold, cosines)[0], abs=1e-6)
    assert sts(results, "sts13").absent == ["SMT"]
    assert results.models[0].components == "none"


def test_whole_suite_of_what_is_there(multi_view: SentenceTransformer, data_dir: Path) -> None:
    # A fold of a tenth needs more rows than a toy has: cross-validated tasks get their own.
    rng = np.random.default_rng(0)
    for path in (data_dir / "mr" / "all.jsonl", data_dir / "trec" / "train.jsonl"):
        write_rows(path, label_rows(rng, 80))
    results = evaluate({"toy": multi_view}, data_dir)
    assert set(results.missing) == {"sts14", "sts15", "sts16", "cr", "subj", "mpqa"}
    assert results.failed == []
    assert not results.complete
    scored = results.model("toy").tasks
    assert set(scored) == set(TASKS) - set(results.missing)
    # The toy labels follow from words that the vectors tell apart.
    assert all(transfer(results, task).accuracy > 0.9 for task in ("mr", "sst2", "trec", "mrpc", "sicke"))
    assert transfer(results, "mr").width == 84
    assert transfer(results, "mrpc").width == 2 * 84
    assert transfer(results, "sickr-supervised").pearson > 0.8
    assert len(transfer(results, "mr").regularization) == 10
    assert sts(results, "sts12").absent == ["SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"]


def test_results_survive_json_and_say_how_they_were_scored(
    multi_view: SentenceTransformer, data_dir: Path, tmp_path: Path
) -> None:
    results = evaluate({"toy": multi_view}, data_dir, tasks=["sts12", "sst2", "cr"])
    results.save(tmp_path / "out" / "results.json")
    assert EvaluationResults.load(tmp_path / "out" / "results.json") == results
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["results.json"]
    table = results.to_markdown()
    assert "unweighted mean over the datasets" in table
    assert "over all pairs of a year joined" in table
    assert "| toy | stored |" in table
    assert "sts12 without SMTeuroparl" in table
    assert "cr: not found" in table
    assert results.settings["seed"] == 1111
    assert results.settings["versions"]["mteb"]
    with pytest.raises(UserError, match="not a file of evaluation results"):
        EvaluationResults.load(data_dir / "sts13" / "OnWN.jsonl")


def test_transductive_is_the_papers_evaluation(multi_view: SentenceTransformer, data_dir: Path) -> None:
    rows = rows_of(data_dir / "sts13" / "OnWN.jsonl")
    gold = [row["score"] for row in rows]
    left, right = (
        encode_transductive(multi_view, [row[side] for row in rows], 2) for side in ("sentence1", "sentence2")
    )
    results = evaluate(multi_view, data_dir, tasks=["sts13"], components="transductive", n_components=2)
    expected = pearsonr(gold, paired_cosines(left, right))[0]
    assert sts(results, "sts13").datasets["OnWN"].pearson == pytest.approx(expected, abs=1e-6)
    assert results.models[0].components == "transductive (2)"
    sides = [
        [row[side] for row in rows_of(data_dir / "sts13" / f"{name}.jsonl")]
        for name in ("FNWN", "headlines", "OnWN")
        for side in ("sentence1", "sentence2")
    ]
    jointly = encode_transductive(multi_view, [text for side in sides for text in side])
    joint = evaluate(multi_view, data_dir, tasks=["sts13"], components="transductive-joint")
    expected = pearsonr(gold, paired_cosines(jointly[-40:-20], jointly[-20:]))[0]
    assert sts(joint, "sts13").datasets["OnWN"].pearson == pytest.approx(expected, abs=1e-6)
    modes = [
        sts(evaluate(multi_view, data_dir, ["sts13"], components=mode), "sts13").mean.pearson
        for mode in ("stored", "transductive", "transductive-joint")
    ]
    assert len(set(modes)) == 3
    with pytest.raises(UserError, match="n_components applies to transductive"):
        evaluate(multi_view, data_dir, ["sts13"], n_components=2)


def test_a_model_that_a_mode_does_not_apply_to_is_named_and_the_others_run(
    static: SentenceTransformer, multi_view: SentenceTransformer, data_dir: Path
) -> None:
    results = evaluate({"static": static, "ours": multi_view}, data_dir, tasks=["sts13"], components="transductive")
    assert [model.name for model in results.models] == ["ours"]
    assert [failure.model for failure in results.failed] == ["static"]
    assert "do not apply" in str(results.failed[0])


def test_broken_data_is_one_line_each_and_the_rest_runs(static: SentenceTransformer, data_dir: Path) -> None:
    rng = np.random.default_rng(0)
    (data_dir / "sts12" / "MSRpar.jsonl").write_text('{"sentence1": "a"\n')
    (data_dir / "sst2" / "train.jsonl").write_text("")
    write_rows(data_dir / "sts13" / "FNWN.jsonl", [row | {"score": 2.0} for row in sts_rows(rng, 9)])
    write_rows(
        data_dir / "stsbenchmark" / "test.jsonl",
        [row | {"sentence2": "a", "sentence1": "a"} for row in sts_rows(rng, 9)],
    )
    write_rows(data_dir / "mrpc" / "train.jsonl", [{"sentence1": "a", "sentence2": "b", "label": 1}] * 30)
    results = evaluate({"toy": static}, data_dir, tasks=["sts12", "sts13", "stsb", "sst2", "mrpc", "sickr"])
    failed = {failure.task: failure.message for failure in results.failed}
    assert "MSRpar.jsonl, line 1: not valid JSON" in failed["sts12/MSRpar"]
    assert "all 9 gold scores are equal" in failed["sts13/FNWN"]
    assert "all 9 predicted scores are equal" in failed["stsb/test"]
    assert "train.jsonl: the file has no rows" in failed["sst2"]
    assert "test has labels that train does not have: 0" in failed["mrpc"]
    assert len(failed) == len(results.problems()) == 5
    assert all("\n" not in message for message in failed.values())
    assert set(results.model("toy").tasks) == {"sts12", "sts13", "sickr"}
    assert set(sts(results, "sts12").datasets) == {"MSRvid"}
    assert "FNWN" in sts(results, "sts13").absent
    assert np.isfinite(sts(results, "sts13").mean.pearson)
    json.dumps(results.to_dict(), allow_nan=False)


def test_unknown_tasks_folders_and_models(static: SentenceTransformer, data_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no task 'sts99'; there are sts12"):
        evaluate(static, data_dir, tasks=["sts99"])
    with pytest.raises(UserError, match="does not exist"):
        evaluate(static, tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"has none of the tasks sts12, .*give the folder that holds"):
        evaluate(static, data_dir / "sts12")
    alone = evaluate(static, data_dir, tasks=["cr", "sickr", "sts99"])
    assert set(alone.missing) == {"cr", "sts99"}
    assert set(alone.models[0].tasks) == {"sickr"}
    results = evaluate([tmp_path / "no-model", static], data_dir, tasks=["sickr"])
    assert "cannot load model" in str(results.failed[0])
    assert len(results.models) == 1


def test_models_by_path_object_and_name(
    multi_view: SentenceTransformer, make_static: Callable[[int], SentenceTransformer], data_dir: Path, tmp_path: Path
) -> None:
    multi_view.save_pretrained(str(tmp_path / "my-model"))
    results = evaluate([str(tmp_path / "my-model"), make_static(0), make_static(1)], data_dir, tasks=["sickr"])
    names = [model.name for model in results.models]
    assert names[0] == "my-model"
    assert len(set(names)) == 3
    scores = [sts(results, "sickr", i).mean.pearson for i in range(3)]
    assert len(set(scores)) == 3, "a score of one model was given to another"
    again = evaluate(multi_view, data_dir, tasks=["sickr"])
    assert sts(again, "sickr").mean.pearson == pytest.approx(scores[0], abs=1e-6)


def test_f1_and_pair_features(static: SentenceTransformer, data_dir: Path) -> None:
    from sklearn.linear_model import LogisticRegression

    results = evaluate(static, data_dir, tasks=["mrpc"])
    scores = transfer(results, "mrpc")
    features, labels = {}, {}
    for split in ("train", "test"):
        rows = rows_of(data_dir / "mrpc" / f"{split}.jsonl")
        u, v = (static.encode([row[side] for row in rows]) for side in ("sentence1", "sentence2"))
        features[split] = np.concatenate([np.abs(u - v), u * v], axis=1)
        np.testing.assert_allclose(features[split], pair_features(u, v), rtol=1e-6)
        labels[split] = np.array([row["label"] for row in rows])
    spread = features["train"].std(axis=0) * np.sqrt(features["train"].shape[1])
    features = {split: values / spread for split, values in features.items()}
    reference = LogisticRegression(C=scores.regularization[0], max_iter=5000).fit(features["train"], labels["train"])
    predicted = reference.predict(features["test"])
    assert scores.accuracy == pytest.approx((predicted == labels["test"]).mean(), abs=0.026)
    assert scores.f1 == pytest.approx(f1_score(labels["test"], predicted), abs=0.03)


def test_global_random_numbers_are_left_alone(static: SentenceTransformer, data_dir: Path) -> None:
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = random.random(), np.random.rand(), torch.rand(1).item()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    evaluate(static, data_dir, tasks=["sickr"])
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == expected


def test_same_seed_same_results(static: SentenceTransformer, data_dir: Path) -> None:
    first, second = (evaluate(static, data_dir, tasks=["mr", "sickr-supervised"]) for _ in range(2))
    assert first.models[0].tasks == second.models[0].tasks


def test_a_users_own_tasks(static: SentenceTransformer, data_dir: Path) -> None:
    class Tickets(STSTask):
        task_name = "tickets"

    class Urgency(ClassificationTask):
        task_name = "urgency"
        protocol = "train-validation-test"

    rng = np.random.default_rng(0)
    write_rows(data_dir / "tickets" / "short.jsonl", sts_rows(rng, 12))
    write_rows(data_dir / "tickets" / "long.jsonl", sts_rows(rng, 15))
    for split in ("train", "validation", "test"):
        rows = [row | {"label": ["low", "high"][row["label"]]} for row in label_rows(rng, 120)]
        write_rows(data_dir / "urgency" / f"{split}.jsonl", rows)
    results = evaluate(static, data_dir, tasks=[Tickets, Urgency])
    assert set(sts(results, "tickets").datasets) == {"short", "long"}
    assert sts(results, "tickets").absent == []
    assert transfer(results, "urgency").accuracy > 0.8
    assert "tickets" in results.to_markdown()


def test_tasks_run_with_mteb_and_an_unwrapped_model(
    static: SentenceTransformer, multi_view: SentenceTransformer, data_dir: Path
) -> None:
    for model in (static, multi_view):
        tasks = [STS13(data_dir), MR(data_dir)]
        outcome = mteb.evaluate(model, tasks, cache=None, show_progress_bar=False, co2_tracker=False)
        ours = evaluate(model, data_dir, tasks=["sts13", "mr"])
        by_name = {result.task_name: result.get_score() for result in outcome.task_results}
        # The main score of an STS task is the paper's: the unweighted mean of Pearson's r over its datasets.
        assert by_name["mv-st-sts13"] == pytest.approx(sts(ours, "sts13").mean.pearson, abs=1e-5)
        assert by_name["mv-st-mr"] == pytest.approx(transfer(ours, "mr").accuracy, abs=0.02)
    with pytest.raises(UserError, match="not found, looked for"):
        STS12(data_dir.parent)


def test_every_task_has_public_data_for_each_part() -> None:
    for task in TASKS.values():
        assert task.hub, task.task_name
        assert task(None).parts
    assert [task.task_name for task in select_tasks(["STS12", "sts12", MR])[0]] == ["sts12", "mr"]


def test_without_the_extra_the_message_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    import mv_st.evaluation

    for name in [name for name in sys.modules if name.startswith("mv_st.evaluation.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mteb", None)
    monkeypatch.setitem(sys.modules, "mteb.abstasks", None)
    with pytest.raises(UserError, match=r"pip install 'mv-st\[evaluation\]'"):
        _ = mv_st.evaluation.evaluate
