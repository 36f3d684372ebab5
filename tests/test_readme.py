"""The code blocks of README.md run, in their order and in one folder, as a reader would try them.

What is run can be seen in the README itself:

- `python` blocks run in one namespace: a block may go on with what an earlier one has made.
- `bash` blocks run line by line. Each line is an `mv-st` command, run for a short time whatever it says.
- A block after `<!-- not run: REASON -->` is left alone: what needs the network, a server or another program.
- Blocks of other languages are output, data or a citation.

Texts, word vectors, models and evaluation data that a block reads are written here, small ones, under the name that
the block gives them, unless an earlier block has made them. So the README can call them what it likes.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from toy_corpus import WORDS, quick_and_alone, toy_documents, toy_vectors, write_toy_files  # noqa: F401 - fixture

from mv_st import build_model, fit_components, load_corpus
from mv_st.cli import build_parser, main
from mv_st.training_callbacks import TimeBudget

README = Path(__file__).parent.parent / "README.md"
SENTENCES_OF_THE_DEMO = 1000
# What the options of the command line, and the arguments of functions, name: something to read, or something to write.
OPTIONS = {
    **{"corpus": "text", "input": "text", "file": "text", "vectors": "vectors", "model": "model", "models": "model"},
    **{"data_dir": "data", "eval_data": "data", "output": "output"},
}
CALLS = {
    "SentenceTransformer": ["model"],
    "load_corpus": ["text"],
    "train_vectors": ["text"],
    "load_vectors": ["vectors"],
    "build_model": ["vectors"],
    "train": ["text", "output"],
    "export_static": ["", "output"],
    "evaluate": ["model", "data"],
}


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the line it begins in, its code, and why it is not run if it is not."""

    language: str
    line: int
    code: str
    reason: str | None


def code_blocks(text: str) -> list[Block]:
    blocks = []
    pattern = r"^(?:<!-- not run: (?P<reason>.+?) -->\n\n?)?^```(?P<language>\w*)\n(?P<code>.*?)^```$"
    for match in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, match.start("code")) + 1
        blocks.append(Block(match["language"], line, match["code"], match["reason"]))
    return blocks


def commands(block: Block) -> list[list[str]]:
    """The lines of a bash block as lists of words, with continued lines joined."""
    lines = [shlex.split(line, comments=True) for line in block.code.replace("\\\n", " ").splitlines()]
    found = [words for words in lines if words]
    for words in found:
        is_plain = words[0] == "mv-st" and not {"|", "<", ">", ">>", "&&", ";"} & set(words)
        assert is_plain, (
            f"README.md, line {block.line}: only plain mv-st commands are run; put `{' '.join(words)}` into a block "
            "of its own after <!-- not run: REASON -->"
        )
    return found


BLOCKS = [block for block in code_blocks(README.read_text(encoding="utf-8")) if block.language in ("python", "bash")]


class Folder:
    """The folder in which everything runs.

    Args:
        path: Where it is.
        model: A small model, to be copied.
    """

    def __init__(self, path: Path, model: Path) -> None:
        self.path = path
        self.model = model
        self.namespace: dict[str, Any] = {"__name__": "__main__"}

    def run(self, block: Block) -> None:
        if block.language == "python":
            self.prepare(names_in_calls(block.code))
            # Empty lines before the code, so that a traceback tells the line of the README.
            exec(compile("\n" * (block.line - 1) + block.code, str(README), "exec"), self.namespace)
            return
        for _, *words in commands(block):
            try:
                options = vars(build_parser().parse_args(words))
                self.prepare((OPTIONS[name], value) for name, value in options.items() if name in OPTIONS)
                code = main(words)
            except SystemExit as end:  # from --help, --version and wrong usage
                code = end.code
            assert code == 0, f"mv-st {' '.join(words)}"

    def prepare(self, names: Iterable[tuple[str, Any]]) -> None:
        """Write what is going to be read, unless it is there; remove what is going to be written."""
        for kind, value in names:
            for name in [value] if isinstance(value, str) else value or []:
                path = self.path / name
                if kind == "output":
                    shutil.rmtree(path, ignore_errors=True)
                elif not path.exists() and name != "-":
                    path.parent.mkdir(parents=True, exist_ok=True)
                    getattr(self, f"write_{kind}")(path)

    def write_text(self, path: Path) -> None:
        documents = toy_documents(100)
        if path.suffix in (".jsonl", ".parquet"):
            import datasets

            table = datasets.Dataset.from_dict({"text": [". ".join(document) + "." for document in documents]})
            (table.to_json if path.suffix == ".jsonl" else table.to_parquet)(path)
        elif path.suffix == ".txt":
            path.write_text("\n\n".join("\n".join(document) for document in documents) + "\n")
        elif not path.suffix:
            path.mkdir()
            self.write_text(path / "a.txt")
        else:
            pytest.fail(f"{path.name}: no text of this kind can be written here")

    def write_vectors(self, path: Path) -> None:
        assert path.suffix in (".vec", ".txt"), f"{path.name}: no vectors of this kind can be written here"
        shutil.copy(write_toy_files(path.parent)[1], path)

    def write_model(self, path: Path) -> None:
        shutil.copytree(self.model, path)

    def write_data(self, path: Path) -> None:
        """Every file of every evaluation task, with rows that have all columns."""
        from mv_st.evaluation import TASKS

        random = np.random.default_rng(0)
        for task in TASKS.values():
            for part in ("all", "train", "validation", "test", *getattr(task, "datasets", ())):
                rows = []
                for number in range(40):
                    first, second = (" ".join(random.choice(WORDS, size=3)) for _ in range(2))
                    rows.append({"text": first, "sentence1": first, "sentence2": second, "label": number % 2})
                    rows[-1] |= {"score": number % 5 + 0.5, "entailment": ["NEUTRAL", "ENTAILMENT"][number % 2]}
                file = path / task.folder / f"{part}.jsonl"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def names_in_calls(code: str) -> list[tuple[str, Any]]:
    """What the calls in Python code read and write, by kind."""
    found = []
    for call in ast.walk(ast.parse(code)):
        if isinstance(call, ast.Call):
            function = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
            if function in CALLS:
                found += list(zip(CALLS[function], call.args, strict=False))
                found += [(OPTIONS[word.arg], word.value) for word in call.keywords if word.arg in OPTIONS]
    return [(kind, value.value) for kind, value in found if isinstance(value, ast.Constant) and kind]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    model = fit_components(build_model(toy_vectors(), hidden_size=4, seed=0), WORDS)
    saved = tmp_path_factory.mktemp("model")
    model.save_pretrained(str(saved), create_model_card=False)
    return Folder(tmp_path_factory.mktemp("reader"), saved)


@pytest.fixture(autouse=True)
def in_little_time(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder; training ends after one batch, the demo reads the first pages of its books."""
    monkeypatch.chdir(folder.path)
    monkeypatch.setenv("MTEB_CACHE", str(folder.path / "mteb"))
    monkeypatch.setattr("mv_st.training.TimeBudget", lambda minutes: TimeBudget(0.001))
    monkeypatch.setattr(
        "mv_st.demo.load_corpus", lambda source: load_corpus(source).select(range(SENTENCES_OF_THE_DEMO))
    )


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.language}-line-{block.line}")
def test_block(block: Block, folder: Folder) -> None:
    if block.reason is not None:
        pytest.skip(block.reason)
    folder.run(block)


def test_there_is_something_to_run() -> None:
    run = [block.language for block in BLOCKS if block.reason is None]
    assert {"python", "bash"} <= set(run)


# --- the test itself ---

SAMPLE = """
Text.

```bash
# a comment
mv-st train some/letters.jsonl \\
    --vectors some.vec --output letters-model --minutes 900  # hours
mv-st encode letters-model letters.txt --output v.npy
mv-st --version
```

<!-- not run: needs the network -->
```bash
pip install mv-st
```

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("letters-model")
```

<!-- not run: an accident -->

```python
1 / 0
```

```text
output
```

```python
assert model.encode(["bal"]).shape == (1, 512)
```
"""


def test_blocks_are_found_with_their_reasons() -> None:
    found = [(block.language, block.line, block.reason) for block in code_blocks(SAMPLE)]
    assert found == [
        ("bash", 5, None),
        ("bash", 14, "needs the network"),
        ("python", 18, None),
        ("python", 26, "an accident"),
        ("text", 30, None),
        ("python", 34, None),
    ]


def test_blocks_run_and_go_on_with_what_earlier_ones_made(folder: Folder) -> None:
    for block in code_blocks(SAMPLE):
        if block.reason is None and block.language != "text":
            folder.run(block)
    assert np.load(folder.path / "v.npy").shape == (899, 512)
    record = json.loads((folder.path / "letters-model" / "training.json").read_text())
    assert (record["corpus"]["sources"], record["vectors"]["source"]) == (["letters.jsonl"], "some.vec")


@pytest.mark.parametrize(
    ("language", "code", "error"),
    [
        ("python", "import mv_st\nmv_st.no_such_name", AttributeError),
        ("bash", "mv-st train --no-such-option", AssertionError),
        ("bash", "mv-st similar my-model my-documents.txt --query bal --view third", AssertionError),
        ("bash", "pip install mv-st", AssertionError),
        ("bash", "mv-st --version | head", AssertionError),
    ],
)
def test_a_block_that_breaks_fails(language: str, code: str, error: type[Exception], folder: Folder) -> None:
    with pytest.raises(error):
        folder.run(Block(language, 1, code, None))


def test_models_that_calls_name_are_there(folder: Folder) -> None:
    code = 'from sentence_transformers import SentenceTransformer\nSentenceTransformer("never-trained")'
    folder.run(Block("python", 1, code, None))
    assert SentenceTransformer(str(folder.path / "never-trained")).encode(["bal"]).shape == (1, 8)
