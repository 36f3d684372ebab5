r"""Why the presets are what they are: the `small` preset with one setting changed at a time.

    python benchmarks/recipes.py books.txt.xz --vectors glove.vec.gz --data-dir eval --models-dir runs \
        --max-steps 200 --linear-first 500

Each line is scored on the two sets that settings are chosen by, STS14 and the validation split of STS-B, with stored
components. Nothing is done twice: a model in --models-dir is not trained again, and each line has a file of its
own in `results/recipes/`, so that several processes may share the lines (`--lines`). `results/recipes.md` is written
from all lines that there are. Lines compare within one table: give another `--name` after a change of the presets.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from baselines import STSBValidation
from reporting import RESULTS, printed_command, write_results
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

import mv_st
from mv_st.components import removal_module
from mv_st.evaluation import evaluate
from mv_st.evaluation.tables import markdown_table
from mv_st.files import whole_file
from mv_st.modules import LinearMeanView

VIEWS = {"sum": None, "f": "gru", "g": "linear"}
SENTENCES_FOR_COMPONENTS = 20_000


class Line(NamedTuple):
    """A line of the table: what is changed in training, or in the components that are fitted afterwards."""

    changes: dict[str, Any] = {}
    components: dict[str, Any] | None = None
    linear_start: Callable[[Tensor], Tensor] | None = None
    """How the weights of the linear view begin, other than as a rotation."""


LINES = {
    "small": Line(),
    "weighting=none": Line({"weighting": "none"}),
    "weighting=learned": Line({"weighting": "learned"}),
    "temperature=1": Line({"temperature": 1.0}),
    "train_on=last": Line({"train_on": "last"}),
    "fade_out=False": Line({"fade_out": False}),
    "gentle_start=False": Line({"gentle_start": False}),
    "spelling=False": Line({"spelling": False, "spelling_codes": 0}),
    "spelling_codes=0": Line({"spelling_codes": 0}),
    "spelling_codes=400": Line({"spelling_codes": 400}),
    "spelling_codes=800": Line({"spelling_codes": 800}),
    "whiten_words=False": Line({"whiten_words": False}),
    "whiten_words=False, whitening=0.5": Line({"whiten_words": False, "whitening": 0.5}),
    "spelling_codes=0, whiten_words=False, whitening=0.5": Line(
        {"spelling_codes": 0, "whiten_words": False, "whitening": 0.5}
    ),
    "window=1": Line({"window": 1}),
    "window=5": Line({"window": 5}),
    "blocks=1": Line({"blocks": 1}),
    "blocks=8": Line({"blocks": 8}),
    "batch_size=256": Line({"batch_size": 256}),
    "learning_rate=0.001": Line({"learning_rate": 1e-3}),
    "learning_rate=0.0002": Line({"learning_rate": 2e-4}),
    "include_self=True": Line({"include_self": True}),
    "linear_first=0": Line({"linear_first": 0}),
    "views=gru": Line({"views": ("gru",)}),
    "clip_norm=1": Line({"clip_norm": 1.0}),
    "max_train_length=20": Line({"max_train_length": 20}),
    "W starts as in the paper": Line(linear_start=nn.init.kaiming_normal_),
    "W starts as the identity": Line(linear_start=nn.init.eye_),
    "hidden_size=128": Line({"hidden_size": 128}),
    "hidden_size=512": Line({"hidden_size": 512}),
    "whitening=0": Line(components={"n_components": 1, "whitening": 0.0}),
    "whitening=0, n_components=10": Line(components={"n_components": 10, "whitening": 0.0}),
    "whitening=0.5": Line(components={"n_components": 1, "whitening": 0.5}),
    "n_components=0": Line(components={"n_components": 0, "whitening": 0.25}),
    "n_components=5": Line(components={"n_components": 5, "whitening": 0.25}),
}


def train(name: str, options: argparse.Namespace) -> Path:
    """The folder of the model of a line, trained unless it is there."""
    line = LINES[name]
    run = "small" if line.components else name
    folder: Path = options.models_dir / run
    if not folder.exists():
        print(f"training {run}", file=sys.stderr)
        with starting_from(line.linear_start):
            mv_st.train(
                options.corpus,
                folder,
                vectors=options.vectors,
                preset="small",
                max_steps=options.max_steps,
                seed=options.seed,
                resume=folder.with_name(f"{run}.run").exists(),
                **({"linear_first": options.linear_first} | line.changes),
            )
    return folder


@contextmanager
def starting_from(linear_start: Callable[[Tensor], Tensor] | None) -> Iterator[None]:
    """Let linear views start with other weights."""
    if linear_start is None:
        yield
        return
    with patch.object(LinearMeanView, "start_gently", lambda view: linear_start(view.linear.weight)):
        yield


def score(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train and score a line."""
    folder = train(name, options)
    model = SentenceTransformer(str(folder))
    if (components := LINES[name].components) is not None:
        corpus = mv_st.load_corpus(options.corpus).shuffle(seed=options.seed)
        sample = corpus.select(range(min(len(corpus), SENTENCES_FOR_COMPONENTS)))["sentence"]
        mv_st.fit_components(model, sample, representations=("similarity", "transfer"), **components)
    scores = {}
    names = removal_module(model).widths
    for label, view in VIEWS.items():
        if view is not None and view not in names:
            continue
        tasks = evaluate({name: model}, options.data_dir, ["sts14", STSBValidation], view=view).models[0].tasks
        scores[label] = {task: round(100 * result.mean.pearson, 2) for task, result in tasks.items()}
    record = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    return {
        "command": printed_command(),
        "corpus": Path(options.corpus).name,
        "vectors": Path(options.vectors).name,
        "changes": LINES[name].changes,
        "linear_first": record["settings"]["linear_first"],
        "components": components,
        "steps": record["steps"],
        "sentences_seen": record["sentences_seen"],
        "training_seconds": record["seconds"]["training"],
        "seed": options.seed,
        "scores": scores,
    }


def write(folder: Path) -> None:
    """The table of all lines that there are."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")}
    lines = {name: found[name] for name in LINES if name in found}
    rows = []
    for name, line in lines.items():
        scores = [line["scores"].get(view, {}).get(task) for view in VIEWS for task in ("sts14", "stsb-validation")]
        cells = ["–" if score is None else f"{score:.1f}" for score in scores]
        rows.append([name, *cells, f"{line['training_seconds'] / 60:.1f}"])
    columns = [f"{view} {task}" for view in VIEWS for task in ("STS14", "STS-B val.")]
    one = next(iter(lines.values()))
    text = [
        "# Recipes",
        "",
        f"The `small` preset on {one['corpus']} with {one['vectors']}, {one['steps']} steps, with one setting changed "
        f"at a time, after a head start of the linear view of {one['linear_first']} steps. Pearson x 100, unweighted "
        "mean over the datasets of STS14; stored components. Lines that change components alone share the model of "
        "the first line. The last column is minutes of training of both views, without the head start.",
        "",
        markdown_table(["line", *columns, "min"], rows),
    ]
    write_results(folder.name, {"command": printed_command(), "lines": lines}, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--models-dir", type=Path, required=True, help="where the trained models go")
    parser.add_argument("--max-steps", type=int, required=True, help="batches of each training run")
    parser.add_argument("--linear-first", type=int, help="batches of the head start; that of the preset if left out")
    parser.add_argument("--lines", nargs="+", choices=list(LINES), default=list(LINES), help="all unless given")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default="recipes", help="name of the output files")
    options = parser.parse_args()
    folder = RESULTS / options.name
    folder.mkdir(parents=True, exist_ok=True)
    for name in options.lines:
        file = folder / f"{name}.json"
        if not file.exists():
            result = score(name, options)
            with whole_file(file) as partial:
                partial.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    write(folder)


if __name__ == "__main__":
    main()
