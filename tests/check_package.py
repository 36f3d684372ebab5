"""Install the built wheel and source archive as a new user would, and use them: `make package`.

    python -m build --outdir dist && python tests/check_package.py dist constraints.txt

Each archive goes into a fresh virtual environment, away from the source tree, first without extras: what needs one has
to say so in one line. The wheel then gets the extras and is used with them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "mv_st"
EXAMPLES = Path(__file__).parent.parent / "examples"
SECONDS_FOR_HELP = 1.0
TRAIN = ("mv-st", "train", "text.txt", "--max-steps", "1")
NOT_WITHOUT_EXTRAS = ("matplotlib", "mteb", "lancedb", "pytest")


class Environment:
    """A fresh virtual environment in an empty folder.

    Args:
        folder: The folder.
        constraints: Versions to install.
    """

    def __init__(self, folder: Path, constraints: Path) -> None:
        self.folder = folder
        self.constraints = constraints
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        # Torch comes first and at the pinned version: a plain `torch` may pull in gigabytes of GPU libraries.
        self.install("torch", "numpy")

    def install(self, *what: str) -> None:
        options = ["--quiet", "--constraint", str(self.constraints)]
        subprocess.run([self.program("python"), "-m", "pip", "install", *options, *what], check=True)

    def program(self, name: str) -> str:
        return str(self.folder / "venv" / "bin" / name)

    def run(self, *command: str, text: str = "", code: int = 0) -> tuple[str, str]:
        """Run a program of the environment and return what it printed."""
        done = subprocess.run(
            [self.program(command[0]), *command[1:]], input=text, capture_output=True, text=True, cwd=self.folder
        )
        assert done.returncode == code, f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout, done.stderr


def check_contents(wheel: Path, source: Path) -> None:
    """The wheel holds the package and nothing else; the source archive also what the tests need."""
    wanted = {
        f"mv_st/{path.relative_to(PACKAGE).as_posix()}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    in_wheel = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert in_wheel == wanted, f"missing in the wheel: {wanted - in_wheel}; not of the package: {in_wheel - wanted}"
    with tarfile.open(source) as archive:
        in_source = {member.name.split("/", 1)[1] for member in archive if member.isfile()}
    repository = ["README.md", "CHANGELOG.md", "LICENSE", "Makefile", "constraints.txt", "tests/conftest.py"]
    missing = wanted.union(repository, ["examples/data/german.txt.xz", "tests/evaluation/toy_tasks.py"]) - in_source
    assert not missing, f"missing in the source archive: {missing}"


def check_without_extras(environment: Environment) -> None:
    """Everything but evaluation and pictures works, and these say what they need."""
    known = f"import importlib.util as u; print([n for n in {NOT_WITHOUT_EXTRAS} if u.find_spec(n)])"
    assert environment.run("python", "-c", known)[0] == "[]\n"
    where = environment.run("python", "-c", "import mv_st; print(mv_st.__file__)")[0].strip()
    assert Path(where).is_relative_to(environment.folder), where
    for option in ("--version", "--help"):
        seconds = min(duration(environment, "mv-st", option) for _ in range(3))
        print(f"  mv-st {option}: {seconds:.2f} s")
        assert seconds < SECONDS_FOR_HELP

    shown, messages = environment.run("mv-st", "demo", "--minutes", "0.1", "--output", "model")
    assert "the trained model" in shown
    assert [line for line in messages.splitlines() if "matplotlib" in line] == [
        "mv-st: no training.png without matplotlib: pip install 'mv-st[plot]'"
    ]
    shown, _ = environment.run("mv-st", "similar", "model", "-", "--query", "quiet water", text="The sea was calm.\n")
    assert shown.endswith("\tThe sea was calm.\n")
    environment.run("mv-st", "export", "model", "static")
    # Without a model of one's own: the one that comes with the package.
    shown, _ = environment.run("mv-st", "similar", "-", "--query", "quiet water", text="The sea was calm.\n")
    assert shown.endswith("\tThe sea was calm.\n")

    line = "mv-st: evaluation needs mteb: pip install 'mv-st[evaluation]'\n"
    assert environment.run("mv-st", "evaluate", "model", "--data-dir", ".", code=1)[1] == line
    # Scores during training need no extra.
    write_rows(environment.folder / "data" / "stsbenchmark" / "validation.jsonl")
    (environment.folder / "text.txt").write_text("One sentence.\nAnother one.\n" * 300)
    environment.run(*TRAIN, "--output", "plain", "--eval-data", "data")
    assert not (environment.folder / "plain" / "training.png").exists()


def check_with_extras(environment: Environment) -> None:
    """A picture of the curves, scores, and the examples that need an extra."""
    write_rows(environment.folder / "data" / "mr" / "all.jsonl")
    shown, _ = environment.run("mv-st", "evaluate", "model", "--data-dir", "data", "--tasks", "mr")
    assert "MR" in shown
    environment.run(*TRAIN, "--output", "drawn")
    assert (environment.folder / "drawn" / "training.png").exists()
    shown, _ = environment.run("python", str(EXAMPLES / "classifier.py"), "--model", "model", "--limit", "500")
    assert "transfer     1792 features" in shown
    shown, _ = environment.run("python", str(EXAMPLES / "vector_database.py"), "text.txt", "--model", "model")
    assert "600 vectors are in" in shown


def write_rows(file: Path) -> None:
    """A tiny evaluation task of any kind."""
    file.parent.mkdir(parents=True)
    rows = [{"text": f"{['Good', 'Bad'][i % 2]} day {i}.", "label": i % 2, "score": i % 5} for i in range(60)]
    file.write_text(
        "".join(json.dumps(row | {"sentence1": "A day.", "sentence2": row["text"]}) + "\n" for row in rows)
    )


def duration(environment: Environment, *command: str) -> float:
    start = time.perf_counter()
    environment.run(*command)
    return time.perf_counter() - start


def main() -> None:
    dist, constraints = (Path(argument).resolve() for argument in sys.argv[1:])
    (wheel,), (source,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    check_contents(wheel, source)
    for archive in (wheel, source):
        print(f"{archive.name}, without extras")
        with tempfile.TemporaryDirectory() as folder:
            environment = Environment(Path(folder).resolve(), constraints)
            environment.install(str(archive))
            check_without_extras(environment)
            if archive == wheel:
                print(f"{archive.name}, with extras")
                environment.install(f"{archive}[plot,evaluation,examples]")
                check_with_extras(environment)
    print("both archives install and work")


if __name__ == "__main__":
    main()
