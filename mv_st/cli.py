"""The command line: one builder and one function per sub-command, heavy imports only inside the functions.

Results go to standard output or to the named file, messages to standard error. Exit code 0 on success, 1 on a failure
that one line explains, 2 on wrong usage.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from . import __version__
from .argument_types import positive_float, positive_int, views
from .errors import UserError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The words after `mv-st`; those of the process if left out.

    Returns:
        The exit code.
    """
    parser = build_parser()
    options = parser.parse_args(arguments)
    _set_up_output(options.verbose)
    try:
        code = options.run(options)
        sys.stdout.flush()  # here, where a failure is still ours to handle
        return code
    except UserError as error:
        print(f"mv-st: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("mv-st: interrupted", file=sys.stderr)
    except BrokenPipeError:
        # The reader of our output, such as `head`, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"mv-st: {error.filename or ''}: {error.strerror or error}".replace(": :", ":"), file=sys.stderr)
    return 1


def build_parser() -> argparse.ArgumentParser:
    """The parser with all sub-commands."""
    parser = argparse.ArgumentParser(
        prog="mv-st", description="Sentence embeddings trained on your own unlabelled text, on a CPU."
    )
    parser.add_argument("--version", action="version", version=f"mv-st {__version__}")
    parser.add_argument("-v", "--verbose", action="store_true", help="show what is being done in detail")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_demo(commands)
    _add_train(commands)
    _add_encode(commands)
    _add_similar(commands)
    _add_evaluate(commands)
    _add_export(commands)
    _add_adapt(commands)
    _add_compact(commands)
    _add_push(commands)
    return parser


def _add_demo(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser("demo", help="train a small model on the bundled text and show what it learnt")
    command.add_argument("--output", default="demo-model", help="folder of the model (default: %(default)s)")
    command.add_argument(
        "--minutes", type=positive_float, default=1.0, help="time for the two views (default: %(default)s)"
    )
    command.add_argument("--seed", type=int, default=0)
    command.set_defaults(run=_demo)


def _demo(options: argparse.Namespace) -> int:
    from .demo import run_demo

    run_demo(options.output, minutes=options.minutes, seed=options.seed)
    return 0


def _add_train(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser("train", help="train a model on ordered text")
    command.add_argument(
        "corpus",
        nargs="+",
        metavar="CORPUS",
        help=".txt, .txt.gz, .txt.xz (a sentence per line, an empty line between documents), .jsonl, .parquet, "
        "hf:dataset-id (whole documents), a folder, or - for standard input",
    )
    command.add_argument("--output", required=True, metavar="DIR", help="folder of the model")
    command.add_argument("--vectors", metavar="FILE", help="word vectors; left out, they are trained on the corpus")
    command.add_argument("--preset", choices=["small", "base", "features", "paper"], default="small")
    command.add_argument("--resume", action="store_true", help="go on with an interrupted run")
    command.add_argument("--overwrite", action="store_true", help="replace the output folder")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--eval-data", metavar="DIR", help="score STS-B validation of this folder during training")

    length = command.add_argument_group("length of training, one pass unless given")
    passes_or_steps = length.add_mutually_exclusive_group()
    passes_or_steps.add_argument("--epochs", type=positive_float, metavar="N")
    passes_or_steps.add_argument("--max-steps", type=positive_int, metavar="N")
    length.add_argument("--minutes", type=positive_float, metavar="M")
    length.add_argument(
        "--checkpoint-minutes",
        dest="minutes_between_checkpoints",
        type=positive_float,
        default=5.0,
        metavar="M",
        help="time between checkpoints (default: %(default)s)",
    )

    method = command.add_argument_group("method, as in the preset unless given")
    method.add_argument("--hidden-size", type=positive_int, metavar="D", help="units per direction")
    method.add_argument("--views", type=views, metavar="KIND,...", help="gru,linear by default; any number of each")
    method.add_argument("--agreement", choices=["cross", "all", "within"])
    method.add_argument("--batch-size", type=positive_int, metavar="N")
    method.add_argument("--window", type=int, metavar="C", help="how far apart neighbours may be")
    method.add_argument("--blocks", type=positive_int, metavar="B", help="runs of consecutive sentences in a batch")
    method.add_argument("--train-on", choices=["last", "mean"], help="state of the GRU that is trained")
    method.add_argument("--weighting", choices=["none", "fixed", "learned"], help="weights of words, in both views")
    method.add_argument("--temperature", type=positive_float, help="where the temperature starts")
    method.add_argument("--components", dest="n_components", type=int, metavar="K", help="components to remove")
    method.add_argument(
        "--fade-out",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="count in the mean state of the GRU the states after the end of a sentence, as they fade",
    )
    method.add_argument(
        "--gentle-start",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="begin with weak recurrence in the GRU, and with a rotation in the linear view",
    )
    method.add_argument(
        "--spelling",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="vectors for unknown words from their spelling",
    )
    method.add_argument("--spelling-codes", type=int, metavar="N", help="width of codes of the spelling, 0 for none")
    method.add_argument(
        "--whiten-words",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whiten word vectors before training",
    )
    method.add_argument(
        "--linear-first", type=int, metavar="N", help="batches from which the linear view learns by itself at first"
    )
    method.add_argument("--whitening", type=float, metavar="P", help="0 (none) to 0.5 (equal variance)")
    method.add_argument("--learning-rate", type=positive_float)
    method.add_argument("--clip-norm", type=positive_float)
    method.add_argument(
        "--precision",
        choices=["float32", "bfloat16", "auto"],
        help="of the products in the GRU; auto: bfloat16 where the processor is faster at it",
    )
    method.add_argument("--max-train-length", type=positive_int, metavar="WORDS")
    method.add_argument(
        "--self",
        dest="include_self",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether a sentence is its own neighbour, or left out",
    )
    method.add_argument("--max-vocab", type=positive_int, metavar="N", help="keep the most frequent words only")
    method.add_argument(
        "--gather-across-devices", action="store_true", help="compare with the sentences of all processes"
    )

    text = command.add_argument_group("corpus")
    text.add_argument("--text-column", metavar="NAME", help="column of documents in .jsonl, .parquet and hf: sources")
    text.add_argument("--language", metavar="CODE", help="language of documents that are split into sentences")
    text.add_argument("--on-bad-line", choices=["skip", "refuse"], default="skip", help="undecodable lines")
    command.set_defaults(run=_train)


def _train(options: argparse.Namespace) -> int:
    from accelerate import PartialState

    from .training import train

    values = {name: value for name, value in vars(options).items() if name not in ("run", "verbose")}
    train(values.pop("corpus"), values.pop("output"), **values)
    if PartialState().is_main_process:
        print(f"the model is in {options.output}", file=sys.stderr)
    return 0


def _add_encode(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser("encode", help="write the vectors of the sentences of a file")
    _add_optional_model(command)
    command.add_argument("input", metavar="INPUT", help="text, one sentence per line; also .gz, .xz, - for stdin")
    command.add_argument("--output", required=True, metavar="FILE", help=".npy, or .parquet with the sentences")
    _add_vector_choice(command)
    command.add_argument("--workers", type=positive_int, default=1, help="number of processes")
    command.set_defaults(run=_encode)


def _encode(options: argparse.Namespace) -> int:
    from .encoding import encode_file

    count = encode_file(
        _load(options.model),
        options.input,
        options.output,
        view=options.view,
        representation=options.representation,
        workers=options.workers,
    )
    print(f"{count:,} vectors are in {options.output}", file=sys.stderr)
    return 0


def _add_similar(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser("similar", help="the sentences of a file that are nearest to a text")
    _add_optional_model(command)
    command.add_argument("file", metavar="FILE", help="text, one sentence per line; also .gz, .xz, - for stdin")
    command.add_argument("--query", required=True, action="append", metavar="TEXT", help="may be given several times")
    command.add_argument("--top", type=positive_int, default=5, metavar="K", help="default: %(default)s")
    _add_vector_choice(command)
    command.set_defaults(run=_similar)


def _similar(options: argparse.Namespace) -> int:
    from .encoding import nearest, read_lines

    sentences = [line for line in read_lines(options.file) if line]
    found = nearest(
        _load(options.model),
        sentences,
        options.query,
        top=options.top,
        view=options.view,
        representation=options.representation,
    )
    for query, matches in zip(options.query, found, strict=True):
        if len(options.query) > 1:
            print(f"# {query}")
        for score, sentence in matches:
            print(f"{score:.3f}\t{sentence}")
    return 0


def _add_evaluate(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser("evaluate", help="score models on STS and SentEval tasks")
    command.add_argument("models", nargs="+", metavar="MODEL", help="folder or Hub id of any SentenceTransformer")
    command.add_argument("--data-dir", metavar="DIR", required=True, help="folder with one folder per task")
    command.add_argument("--tasks", type=lambda text: text.split(","), metavar="NAME,...", help="all unless given")
    modes = ["stored", "transductive", "transductive-joint", "adapted"]
    command.add_argument("--components", choices=modes, default="stored", help="default: %(default)s")
    command.add_argument("--n-components", type=int, metavar="K", help="how many to fit in the transductive modes")
    command.add_argument("--view", help="one view alone")
    command.add_argument("--seed", type=int, default=1111)
    command.add_argument("--output", metavar="FILE.json", help="complete results")
    command.set_defaults(run=_evaluate)


def _evaluate(options: argparse.Namespace) -> int:
    from .evaluation import evaluate

    results = evaluate(
        options.models,
        options.data_dir,
        tasks=options.tasks,
        components=options.components,
        n_components=options.n_components,
        view=options.view,
        seed=options.seed,
    )
    if options.output:
        results.save(options.output)
    print(results.to_markdown())
    for problem in results.problems():
        print(f"mv-st: {problem}", file=sys.stderr)
    return 0 if results.complete else 1


def _add_export(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser("export", help="write a model that needs no mv-st")
    command.add_argument("model", metavar="MODEL", help="folder or Hub id")
    command.add_argument("output", metavar="DIR", help="folder of the new model")
    kind = command.add_mutually_exclusive_group()
    kind.add_argument("--view", help="which linear view to fold into a static model, if there are several")
    kind.add_argument(
        "--self-contained",
        action="store_true",
        help="the whole model with the code of its modules, instead of a static model of the linear view",
    )
    command.add_argument("--overwrite", action="store_true", help="replace the output folder")
    command.set_defaults(run=_export)


def _export(options: argparse.Namespace) -> int:
    from .self_contained import save_self_contained
    from .static_export import export_static

    model = _load(options.model)
    if options.self_contained:
        save_self_contained(model, options.output, overwrite=options.overwrite)
        print(f"the self-contained model is in {options.output}", file=sys.stderr)
    else:
        export_static(model, options.output, view=options.view, overwrite=options.overwrite)
        print(f"the static model is in {options.output}", file=sys.stderr)
    return 0


def _add_adapt(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser("adapt", help="write a copy of a model that is adapted to the sentences of a file")
    _add_optional_model(command)
    command.add_argument("file", metavar="FILE", help="text, one sentence per line; also .gz, .xz, - for stdin")
    command.add_argument("--output", required=True, metavar="DIR", help="folder of the copy")
    command.add_argument("--overwrite", action="store_true", help="replace the output folder")
    command.set_defaults(run=_adapt)


def _adapt(options: argparse.Namespace) -> int:
    from .components import adapt_components
    from .encoding import read_lines

    sentences = [line for line in read_lines(options.file) if line]
    if not sentences:
        raise UserError(f"{options.file}: no sentences to adapt to")
    adapted = adapt_components(_load(options.model), sentences, show_progress=True)
    _save_copy(adapted, options, adapted_to=len(sentences))
    print(f"the adapted model is in {options.output}", file=sys.stderr)
    return 0


def _add_compact(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser("compact", help="write a small copy of a model: fewer words, saved as bytes")
    command.add_argument("model", metavar="MODEL", help="folder or Hub id")
    command.add_argument("output", metavar="DIR", help="folder of the copy")
    command.add_argument("--max-vocab", type=positive_int, default=16_000, metavar="N", help="default: %(default)s")
    command.add_argument(
        "--n-buckets", type=positive_int, default=6_144, metavar="N", help="rows for spelling, default: %(default)s"
    )
    command.add_argument("--overwrite", action="store_true", help="replace the output folder")
    command.set_defaults(run=_compact)


def _compact(options: argparse.Namespace) -> int:
    from .compact import compact_model

    small = compact_model(_load(options.model), max_vocab=options.max_vocab, n_buckets=options.n_buckets)
    _save_copy(small, options)
    print(f"the small copy is in {options.output}", file=sys.stderr)
    return 0


def _add_push(commands: argparse._SubParsersAction) -> None:
    command = commands.add_parser("push", help="upload a model to the Hugging Face Hub")
    command.add_argument("model", metavar="MODEL", help="folder or Hub id")
    command.add_argument("repo_id", metavar="REPO_ID", help="user/name")
    command.add_argument("--private", action="store_true", help="make the repository private")
    command.add_argument("--overwrite", action="store_true", help="put a new version into a repository that exists")
    command.add_argument(
        "--self-contained", action="store_true", help="upload the code of the modules, for people without mv-st"
    )
    command.add_argument("--results", metavar="FILE.json", help="scores for the model card, from mv-st evaluate")
    command.add_argument("--license", metavar="ID", help="licence of the model, such as apache-2.0")
    command.add_argument("--language", metavar="CODE", help="language of the model, such as en")
    command.set_defaults(run=_push)


def _push(options: argparse.Namespace) -> int:
    from .hub import push_to_hub

    values = {name: value for name, value in vars(options).items() if name not in ("run", "verbose", "model")}
    folder = options.model if Path(options.model).is_dir() else None
    print(push_to_hub(_load(options.model), **values, folder=folder))
    return 0


def _add_optional_model(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="folder or Hub id; left out: the English model that mv-st brings along",
    )


def _add_vector_choice(command: argparse.ArgumentParser) -> None:
    command.add_argument("--view", help="one view alone, such as gru or linear")
    command.add_argument("--representation", choices=["similarity", "transfer"], default="similarity")


def _load(model: str | None) -> SentenceTransformer:
    from safetensors import SafetensorError
    from sentence_transformers import SentenceTransformer

    if model is None:
        from .shipped_model import load_shipped_model

        return load_shipped_model()
    if not Path(model).exists() and (model.count("/") != 1 or model.startswith((".", "/"))):
        raise UserError(f"there is no model in {model}")
    try:
        return SentenceTransformer(model)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise UserError(f"cannot load the model {model}: {_first_line(error)}") from None


def _save_copy(model: SentenceTransformer, options: argparse.Namespace, **changes: int) -> None:
    """Save a model that was made from the one on the command line, with what is known of its training."""
    from .files import whole_directory
    from .shipped_model import SHIPPED_MODEL

    record = Path(str(SHIPPED_MODEL) if options.model is None else options.model, "training.json")
    with whole_directory(options.output, overwrite=options.overwrite) as directory:
        if record.is_file():  # before the model, whose card tells what is in it
            known = json.loads(record.read_text(encoding="utf-8")) | changes
            (directory / record.name).write_text(json.dumps(known, indent=2), encoding="utf-8")
        model.save_pretrained(str(directory))


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _set_up_output(verbose: bool) -> None:
    logging.basicConfig(level=logging.WARNING, format="mv-st: %(message)s", stream=sys.stderr)
    logging.getLogger("mv_st").setLevel(logging.INFO if verbose else logging.WARNING)
    if not verbose:
        # Progress of the host libraries; ours says the same in fewer words.
        os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
        logging.getLogger("sentence_transformers").setLevel(logging.ERROR)


if __name__ == "__main__":
    sys.exit(main())
