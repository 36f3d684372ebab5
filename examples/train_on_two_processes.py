"""Train in several processes at once, on one machine or more, with or without GPUs.

    accelerate launch --multi_gpu --num_processes 2 examples/train_on_two_processes.py
    torchrun --nproc-per-node 2 examples/train_on_two_processes.py my-documents.txt --output my-model --minutes 60

`--multi_gpu` is what makes accelerate start two processes on a CPU as well; without it there is only one. Each
process has batches of its own and the gradients are averaged; with gather_across_devices the sentences of all
processes are negatives for each other, as in one larger batch. `mv-st train` can be launched in the same way:
`torchrun ... -m mv_st train ...`. Prints the number of processes and the sentences per second of all of them
together.
"""

from __future__ import annotations

import argparse
import json
from importlib.resources import files
from pathlib import Path

from accelerate import PartialState

from mv_st import train

BOOKS = str(files("mv_st") / "data" / "books.txt.xz")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="*", default=[BOOKS], help="your documents (default: the bundled books)")
    parser.add_argument("--output", type=Path, default=Path("two-process-model"), help="folder of the model")
    parser.add_argument("--batch-size", type=int, default=256, help="of each process (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=2.0, help="time for training (default: %(default)s)")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier model")
    options = parser.parse_args()

    # The first process reads the corpus and trains the word vectors, the others wait. All return the same model.
    model = train(
        options.corpus,
        options.output,
        batch_size=options.batch_size,
        minutes=options.minutes,
        overwrite=options.overwrite,
        gather_across_devices=True,
    )

    state = PartialState()
    if state.is_main_process:
        record = json.loads((options.output / "training.json").read_text(encoding="utf-8"))
        speed = record["sentences_seen"] / record["seconds"]["training"]
        print(f"{record['processes']} processes, {record['steps']:,} steps, {speed:,.0f} sentences per second")
        print(f"vectors of {model.get_embedding_dimension()} dimensions; the model is in {options.output}")
    state.destroy_process_group()


if __name__ == "__main__":
    main()
