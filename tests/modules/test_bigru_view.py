"""The sequential view against the GRU's equations, one word at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from mv_st.modules import BiGRUView, bigru_view
from mv_st.modules.words import Words

LENGTHS = [4, 1, 6, 2]


@pytest.fixture
def words() -> Words:
    table = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    ids = torch.randint(30, (sum(LENGTHS),), generator=torch.Generator().manual_seed(1))
    return Words(ids, torch.tensor(LENGTHS), table, dtype=torch.float32)


@pytest.fixture
def view() -> BiGRUView:
    torch.manual_seed(0)
    view = BiGRUView(3, 5)
    for parameter in view.parameters():  # biases that are not all alike
        torch.nn.init.normal_(parameter, std=0.7)
    return view.eval()


def literal_states(view: BiGRUView, words: Words) -> list[tuple[Tensor, Tensor]]:
    """For each sentence its states (M, 2d) and its last state (2d,)."""
    weights = dict(view.gru.named_parameters())
    d = view.hidden_size

    def run(rows: list[Tensor], suffix: str) -> list[Tensor]:
        w_ir, w_iz, w_in = weights[f"weight_ih_l0{suffix}"].split(d)
        w_hr, w_hz, w_hn = weights[f"weight_hh_l0{suffix}"].split(d)
        b_ir, b_iz, b_in = weights[f"bias_ih_l0{suffix}"].split(d)
        b_hr, b_hz, b_hn = weights[f"bias_hh_l0{suffix}"].split(d)
        h = torch.zeros(d)
        states = []
        for x in rows:
            r = torch.sigmoid(w_ir @ x + b_ir + w_hr @ h + b_hr)
            z = torch.sigmoid(w_iz @ x + b_iz + w_hz @ h + b_hz)
            n = torch.tanh(w_in @ x + b_in + r * (w_hn @ h + b_hn))
            h = (1 - z) * n + z * h
            states.append(h)
        return states

    result = []
    vectors = words.vectors
    if view.word_weights is not None:
        vectors = vectors * view.word_weights.detach()[words.known_ids].unsqueeze(1)
    for sentence in vectors.split(LENGTHS):
        forward = run(list(sentence), "")
        backward = run(list(sentence.flip(0)), "_reverse")[::-1]
        states = torch.stack([torch.cat(pair) for pair in zip(forward, backward, strict=True)])
        result.append((states, torch.cat([forward[-1], backward[0]])))
    return result


def test_similarity_is_the_mean_state(view: BiGRUView, words: Words) -> None:
    expected = torch.stack([states.mean(0) for states, _ in literal_states(view, words)])
    torch.testing.assert_close(view.similarity_vector(words), expected)


@pytest.mark.parametrize("train_on", ["last", "mean"])
@pytest.mark.parametrize("few", [0, 1000])
def test_few_sentences_give_the_same(
    view: BiGRUView, words: Words, train_on: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bigru_view, "FEW_FLOATS", few)
    view.train_on = train_on  # type: ignore[assignment]
    literal = literal_states(view, words)
    with torch.no_grad():
        last_or_mean, mean = view.training_vector(words), view.similarity_vector(words)
    torch.testing.assert_close(mean, torch.stack([states.mean(0) for states, _ in literal]))
    expected = torch.stack([last for _, last in literal]) if train_on == "last" else mean
    torch.testing.assert_close(last_or_mean, expected)


def without_weights(view: BiGRUView) -> BiGRUView:
    same = BiGRUView(view.embedding_dimension, view.hidden_size)
    same.gru = view.gru
    return same


@pytest.mark.parametrize("few", [0, 1000])
@pytest.mark.parametrize("weighting", ["fixed", "learned"])
def test_words_have_weights(
    words: Words, weighting: str, few: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bigru_view, "FEW_FLOATS", few)
    weights = torch.linspace(0.1, 1.0, 30)
    view = BiGRUView(3, 5, "gru", "mean", weighting, 30, weights).eval()  # type: ignore[arg-type]
    literal = literal_states(view, words)
    expected = torch.stack([states.mean(0) for states, _ in literal])
    assert not torch.allclose(expected, without_weights(view).similarity_vector(words))
    with torch.no_grad():
        torch.testing.assert_close(view.similarity_vector(words), expected)
    trained = view.training_vector(words)
    torch.testing.assert_close(trained, expected)
    plain = without_weights(view)
    torch.testing.assert_close(view.transfer_vector(words), plain.transfer_vector(words))
    trained.sum().backward()
    assert ("word_weights" in dict(view.named_parameters())) == (weighting == "learned")
    if weighting == "learned":
        used = view.word_weights.grad.nonzero().flatten().tolist()
        assert used == sorted(set(words.known_ids.tolist()))
    view.save(str(tmp_path))
    with torch.no_grad():
        torch.testing.assert_close(BiGRUView.load(str(tmp_path)).similarity_vector(words), expected)


@pytest.mark.parametrize("few", [0, 1000])
def test_fading_out_is_reading_on(words: Words, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a GRU without recurrent weights and with gates that stay at their bias, zero words after the end of a
    sentence (before its beginning, for the backward direction) fade as the formula says; literal sums of them."""
    monkeypatch.setattr(bigru_view, "FEW_FLOATS", few)
    torch.manual_seed(0)
    view = BiGRUView(3, 5, train_on="mean", fade_out=True).eval()
    with torch.no_grad():
        for name, parameter in view.gru.named_parameters():
            if name.startswith("weight_hh"):
                parameter.zero_()
            elif name.startswith("weight_ih"):
                parameter[:10] = 0.0
            elif name.startswith("bias"):
                parameter[5:10] += torch.linspace(-0.5, 0.3, 5)  # units that remember more or less, as after training
    gate = (1.0 + 2 * torch.linspace(-0.5, 0.3, 5)).sigmoid().repeat(2)
    expected = []
    for states, last in literal_states(view, words):
        after = sum((last * gate**k for k in range(1, 200)), torch.zeros(10))
        expected.append((states.sum(0) + after) / len(states))
    with torch.no_grad():
        torch.testing.assert_close(view.similarity_vector(words), torch.stack(expected))
    torch.testing.assert_close(view.training_vector(words), torch.stack(expected))
    # So the order of words does not matter to such a GRU.
    turned = Words(words.known_ids.split(LENGTHS)[2].flip(0), torch.tensor([LENGTHS[2]]), words.table)
    with torch.no_grad():
        torch.testing.assert_close(view.similarity_vector(turned)[0], expected[2])


def test_transfer_is_max_mean_min_last(view: BiGRUView, words: Words) -> None:
    rows = []
    for states, last in literal_states(view, words):
        columns = list(zip(*states.tolist(), strict=True))
        rows.append(
            [max(c) for c in columns] + [sum(c) / len(c) for c in columns] + [min(c) for c in columns] + last.tolist()
        )
    torch.testing.assert_close(view.transfer_vector(words), torch.tensor(rows))
    assert view.widths == {"similarity": 10, "transfer": 40}


@pytest.mark.parametrize("train_on", ["last", "mean"])
def test_training_vector_and_the_phase_that_selects_it(words: Words, train_on: str, view: BiGRUView) -> None:
    view.train_on = train_on  # type: ignore[assignment]
    literal = literal_states(view, words)
    expected = torch.stack([last if train_on == "last" else states.mean(0) for states, last in literal])
    torch.testing.assert_close(view.train()({"words": words})["views"]["gru"], expected)
    mean = torch.stack([states.mean(0) for states, _ in literal])
    torch.testing.assert_close(view.eval()({"words": words})["views"]["gru"], mean)


def test_initial_weights() -> None:
    torch.manual_seed(0)
    d = 200
    gru = BiGRUView(100, d).gru
    for suffix in ("", "_reverse"):
        # He: a normal distribution with variance 2 / fan-in.
        assert getattr(gru, f"weight_ih_l0{suffix}").std().item() == pytest.approx((2 / 100) ** 0.5, rel=0.02)
        assert getattr(gru, f"weight_hh_l0{suffix}").std().item() == pytest.approx((2 / d) ** 0.5, rel=0.02)
        bias = getattr(gru, f"bias_ih_l0{suffix}") + getattr(gru, f"bias_hh_l0{suffix}")
        assert bias.tolist() == [1.0] * (2 * d) + [0.0] * d  # reset, update, candidate


def test_a_gentle_start_is_not_upset_by_a_word() -> None:
    """Another first word upsets all later states if recurrent weights are large; here it is only remembered."""
    d, length = 100, 12
    torch.manual_seed(0)
    table = torch.randn(40, 50) * 0.35  # about as long as usual word vectors
    sentence = torch.arange(1, length + 1)
    changed = sentence.clone()
    changed[0] = 30
    words = Words(torch.cat([sentence, changed]), torch.tensor([length, length]), table)
    shares = []
    for gentle in (False, True):
        view = BiGRUView(50, d)
        if gentle:
            before = {name: parameter.clone() for name, parameter in view.gru.named_parameters()}
            view.start_gently()
            for name, parameter in view.gru.named_parameters():
                if name.startswith("weight_hh"):
                    torch.testing.assert_close(parameter, 0.1 * before[name])
                else:
                    assert torch.equal(parameter, before[name])
        states, _ = view.gru(table[torch.stack([sentence, changed], dim=1)])  # (words, sentences, 2d)
        forward = states[:, :, :d]
        shares.append(((forward[-1, 0] - forward[-1, 1]).norm() / (forward[0, 0] - forward[0, 1]).norm()).item())
        mean = view.eval()({"words": words})["views"]["gru"]
        torch.testing.assert_close(mean, states.mean(dim=0))
    remembered = torch.tensor(1.0).sigmoid().item() ** (length - 1)  # what eleven update gates let through
    assert shares[1] == pytest.approx(remembered, rel=0.3)
    assert shares[0] > 2 * remembered


def test_saves_weights_that_lie_in_one_block_of_memory(view: BiGRUView, words: Words, tmp_path: Path) -> None:
    """As they do on a GPU, where safetensors refuses them."""
    block = torch.cat([parameter.detach().flatten() for parameter in view.parameters()])
    start = 0
    for parameter in view.parameters():
        parameter.data = block[start : start + parameter.numel()].view(parameter.shape)
        start += parameter.numel()
    view.save(str(tmp_path))
    loaded = BiGRUView.load(str(tmp_path)).eval()
    for name, weight in view.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight)
    # Not bit for bit: matrix products round differently where a matrix does not begin at a round address.
    torch.testing.assert_close(loaded.transfer_vector(words), view.transfer_vector(words))
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["config.json", "model.safetensors"]


def test_weights_are_readable_by_others(view: BiGRUView, tmp_path: Path) -> None:
    view.save(str(tmp_path))
    modes = {(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()}
    assert len(modes) == 1, "the weights are as readable as the configuration"
