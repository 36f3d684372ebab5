from __future__ import annotations

import copy
import multiprocessing
import pickle
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from mv_st.modules import gru_direction, gru_kernel
from mv_st.modules.gru_kernel import bidirectional_gru, pooled_bidirectional_gru, reference_bidirectional_gru

WIDTH, HIDDEN = 7, 5
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
LENGTHS = {
    "mixed": [3, 1, 6, 2, 6, 1, 4],
    "one sentence": [5],
    "one word": [1],
    "all of length one": [1, 1, 1, 1],
    "equal": [4, 4, 4],
}


@pytest.fixture(autouse=True)
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """The number of threads of torch: 2, unless a test asks for others."""
    before = torch.get_num_threads()
    number = getattr(request, "param", 2)
    torch.set_num_threads(number)
    yield number
    torch.set_num_threads(before)


with_1_2_and_4_threads = pytest.mark.parametrize("threads", [1, 2, 4], indirect=True)


@pytest.fixture(params=[4, 1024], ids=["small chunks", "one chunk"])
def _chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gru_direction, "CHUNK_WORDS", request.param)


def make_case(lengths: list[int], dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, nn.GRU]:
    torch.manual_seed(0)
    gru = nn.GRU(WIDTH, HIDDEN, bidirectional=True, dtype=dtype)
    for parameter in gru.parameters():  # larger than PyTorch's, so that the gates leave their linear range
        nn.init.normal_(parameter, std=0.7)
    return torch.randn(sum(lengths), WIDTH, dtype=dtype), torch.tensor(lengths), gru


def literal_gru(tokens: Tensor, lengths: Tensor, gru: nn.GRU) -> tuple[Tensor, Tensor]:
    """The gate equations, word by word."""
    states = torch.zeros(len(tokens), 2 * gru.hidden_size, dtype=tokens.dtype)
    last = torch.zeros(len(lengths), 2 * gru.hidden_size, dtype=tokens.dtype)
    start = 0
    for sentence, length in enumerate(lengths.tolist()):
        for direction, suffix in enumerate(["", "_reverse"]):
            w_ir, w_iz, w_in = getattr(gru, "weight_ih_l0" + suffix).chunk(3)
            w_hr, w_hz, w_hn = getattr(gru, "weight_hh_l0" + suffix).chunk(3)
            b_ir, b_iz, b_in = getattr(gru, "bias_ih_l0" + suffix).chunk(3)
            b_hr, b_hz, b_hn = getattr(gru, "bias_hh_l0" + suffix).chunk(3)
            columns = slice(direction * gru.hidden_size, (direction + 1) * gru.hidden_size)
            words = range(start, start + length)
            h = torch.zeros(gru.hidden_size, dtype=tokens.dtype)
            for word in words if direction == 0 else reversed(words):
                x = tokens[word]
                r = torch.sigmoid(w_ir @ x + b_ir + w_hr @ h + b_hr)
                z = torch.sigmoid(w_iz @ x + b_iz + w_hz @ h + b_hz)
                n = torch.tanh(w_in @ x + b_in + r * (w_hn @ h + b_hn))
                h = (1 - z) * n + z * h
                states[word, columns] = h
            last[sentence, columns] = h
        start += length
    return states, last


def gradients(
    function: Callable[..., tuple[Tensor, Tensor]], case: tuple[Tensor, Tensor, nn.GRU], outputs: str, **kwargs: Tensor
) -> list[Tensor]:
    """Gradients of tokens and parameters under a fixed random weighting of the chosen outputs."""
    tokens, lengths, gru = case
    tokens = tokens.detach().clone().requires_grad_()
    gru.zero_grad()
    states, last = function(tokens, lengths, gru, **kwargs)
    generator = torch.Generator().manual_seed(1)
    of_states = torch.randn(states.shape, generator=generator, dtype=states.dtype)
    of_last = torch.randn(last.shape, generator=generator, dtype=last.dtype)
    loss = torch.zeros((), dtype=states.dtype)
    if "states" in outputs:
        loss = loss + (states * of_states).sum()
    if "last" in outputs:
        loss = loss + (last * of_last).sum()
    loss.backward()
    return [tokens.grad, *(parameter.grad.clone() for parameter in gru.parameters())]


def assert_close(actual: Tensor, expected: Tensor) -> None:
    tolerance = TOLERANCE[expected.dtype] * max(1.0, expected.abs().max().item())
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("implementation", [bidirectional_gru, reference_bidirectional_gru])
def test_follows_the_gate_equations(implementation: Callable[..., tuple[Tensor, Tensor]]) -> None:
    case = make_case(LENGTHS["mixed"])
    for actual, expected in zip(implementation(*case), literal_gru(*case), strict=True):
        assert_close(actual, expected)
    actual_grads = gradients(implementation, case, "states and last")
    for actual, expected in zip(actual_grads, gradients(literal_gru, case, "states and last"), strict=True):
        assert_close(actual, expected)


@with_1_2_and_4_threads
@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
def test_equals_the_reference(lengths: list[int], dtype: torch.dtype) -> None:
    case = make_case(lengths, dtype)
    with torch.inference_mode():
        for actual, expected in zip(bidirectional_gru(*case), reference_bidirectional_gru(*case), strict=True):
            assert_close(actual, expected)
    for outputs in ["states", "last", "states and last"]:
        expected_grads = gradients(reference_bidirectional_gru, case, outputs)
        for actual, expected in zip(gradients(bidirectional_gru, case, outputs), expected_grads, strict=True):
            assert_close(actual, expected)


def test_one_long_sentence_among_short_ones() -> None:
    case = make_case([1, 1, 512, 1, 1])
    expected_grads = gradients(reference_bidirectional_gru, case, "states and last")
    for actual, expected in zip(gradients(bidirectional_gru, case, "states and last"), expected_grads, strict=True):
        assert_close(actual, expected)


def test_many_words_at_full_width() -> None:
    torch.manual_seed(0)
    gru = nn.GRU(300, 64, bidirectional=True)
    lengths = torch.randint(1, 30, (200,))
    assert lengths.sum() > 2 * gru_direction.CHUNK_WORDS
    case = torch.randn(int(lengths.sum()), 300), lengths, gru
    expected_grads = gradients(reference_bidirectional_gru, case, "last")
    for actual, expected in zip(gradients(bidirectional_gru, case, "last"), expected_grads, strict=True):
        assert_close(actual, expected)


@pytest.mark.usefixtures("_chunks")
def test_index_selects_the_word_vectors() -> None:
    tokens, lengths, gru = make_case(LENGTHS["mixed"])
    index = torch.randint(0, 6, (len(tokens),))
    case = tokens[:9], lengths, gru  # rows 6 to 8 are not used
    states, last = bidirectional_gru(*case, index=index)
    expected_states, expected_last = literal_gru(tokens[index], lengths, gru)
    assert_close(states, expected_states)
    assert_close(last, expected_last)
    expected_grads = gradients(reference_bidirectional_gru, case, "states and last", index=index)
    actual_grads = gradients(bidirectional_gru, case, "states and last", index=index)
    for actual, expected in zip(actual_grads, expected_grads, strict=True):
        assert_close(actual, expected)


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("with_index", [False, True])
@pytest.mark.parametrize("pool", ["last", "mean"])
def test_pooling_inside_equals_pooling_outside(pool: gru_kernel.Pool, with_index: bool) -> None:
    tokens, lengths, gru = make_case(LENGTHS["mixed"])
    index = torch.randint(0, 6, (len(tokens),)) if with_index else None
    weighting = torch.randn(len(lengths), 2 * HIDDEN, dtype=tokens.dtype)
    results = []
    for inside in [True, False]:
        gru.zero_grad()
        if inside:
            pooled = pooled_bidirectional_gru(tokens, lengths, gru, pool, index)
        else:
            states, pooled = reference_bidirectional_gru(tokens, lengths, gru, index)
            if pool == "mean":
                pooled = torch.stack([words.mean(0) for words in states.split(lengths.tolist())])
        (pooled * weighting).sum().backward()
        results.append([pooled, *(parameter.grad for parameter in gru.parameters())])
    for actual, expected in zip(*results, strict=True):
        assert_close(actual, expected)


@pytest.mark.parametrize("with_index", [False, True])
def test_gradcheck(with_index: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gru_direction, "CHUNK_WORDS", 4)
    lengths = torch.tensor([2, 3, 1])
    index = torch.tensor([0, 1, 2, 1, 0, 3]) if with_index else None
    gru = nn.GRU(2, 2, bidirectional=True, dtype=torch.float64)
    tokens = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)

    def function(tokens: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        apply = gru_kernel._BidirectionalGRU.apply
        states, last = apply(index, lengths, None, True, torch.float64, tokens, *weights)
        mean, _ = apply(index, lengths, "mean", True, torch.float64, tokens, *weights)
        return states, last, mean

    assert torch.autograd.gradcheck(function, (tokens, *gru.parameters()), fast_mode=True)


def test_backward_may_run_twice() -> None:
    tokens, lengths, gru = make_case(LENGTHS["mixed"])
    loss = bidirectional_gru(tokens, lengths, gru)[0].square().sum()
    loss.backward(retain_graph=True)
    first = gru.weight_hh_l0.grad.clone()
    loss.backward()
    torch.testing.assert_close(gru.weight_hh_l0.grad, 2 * first)


def unreachable(*args: object) -> None:
    pytest.fail("this should not have been computed")


@pytest.mark.parametrize("index", [None, torch.arange(23)])
def test_frozen_tokens_cost_nothing(index: Tensor | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gru_direction, "_through_input", unreachable)
    tokens, lengths, gru = make_case(LENGTHS["mixed"])
    bidirectional_gru(tokens, lengths, gru, index)[1].sum().backward()
    assert tokens.grad is None


def test_frozen_parameters_get_no_gradient() -> None:
    tokens, lengths, gru = make_case(LENGTHS["mixed"])
    gru.weight_ih_l0.requires_grad_(False)
    bidirectional_gru(tokens, lengths, gru)[1].sum().backward()
    assert gru.weight_ih_l0.grad is None
    assert gru.weight_hh_l0.grad is not None


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_keeps_no_tape_for_a_backward_pass_that_cannot_come(
    mode: Callable[[], torch.no_grad], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gru_direction, "_new_tape", unreachable)
    case = make_case(LENGTHS["mixed"])
    with mode():
        states, last = bidirectional_gru(*case)
    assert not states.requires_grad
    assert not last.requires_grad
    assert not bidirectional_gru(case[0], case[1], case[2].requires_grad_(False))[0].requires_grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single_precision(dtype: torch.dtype) -> None:
    tokens, lengths, gru = make_case(LENGTHS["mixed"], dtype)
    states, last = bidirectional_gru(tokens, lengths, gru)
    expected_states, expected_last = bidirectional_gru(tokens.float(), lengths, copy.deepcopy(gru).float())
    assert torch.equal(states, expected_states.to(dtype))
    assert torch.equal(last, expected_last.to(dtype))
    states.float().sum().backward()
    assert gru.weight_hh_l0.grad.dtype == dtype
    assert gru.weight_hh_l0.grad.isfinite().all()


def distance(actual: Tensor, expected: Tensor) -> float:
    return ((actual - expected).norm() / expected.norm()).item()


@with_1_2_and_4_threads
@pytest.mark.usefixtures("_chunks")
def test_autocast_computes_recurrent_products_in_16_bits() -> None:
    case = make_case(LENGTHS["mixed"], torch.float32)
    exact = [*bidirectional_gru(*case), *gradients(bidirectional_gru, case, "states and last")]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = [*bidirectional_gru(*case), *gradients(bidirectional_gru, case, "states and last")]
    for actual, expected in zip(rounded, exact, strict=True):
        assert actual.dtype == torch.float32
        # A bfloat16 is exact to 1 in 256 or better.
        assert 1e-6 < distance(actual, expected) < 0.02


@pytest.mark.usefixtures("_chunks")
def test_16_bits_are_exact_where_they_suffice() -> None:
    """Recurrent weights that are powers of two, and states that are 0 or 1: nothing is rounded but what is exact."""
    tokens, lengths, gru = make_case(LENGTHS["mixed"], torch.float32)
    with torch.no_grad():
        for suffix in ("", "_reverse"):
            weight = getattr(gru, "weight_hh_l0" + suffix)
            weight.copy_(torch.eye(HIDDEN).repeat(3, 1) * 2)
            getattr(gru, "bias_ih_l0" + suffix)[HIDDEN : 2 * HIDDEN] = -100  # the update gate is shut: h = n
            getattr(gru, "bias_ih_l0" + suffix)[2 * HIDDEN :] = 100  # n = 1
    exact = bidirectional_gru(tokens, lengths, gru)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = bidirectional_gru(tokens, lengths, gru)
    assert all(map(torch.equal, rounded, exact))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_autocast_to_another_type_or_of_doubles_changes_nothing(dtype: torch.dtype) -> None:
    case = make_case(LENGTHS["mixed"], torch.float64 if dtype == torch.float64 else torch.float32)
    expected = gradients(bidirectional_gru, case, "last")
    with torch.autocast("cpu", dtype=torch.bfloat16 if dtype == torch.float64 else dtype):
        actual = gradients(bidirectional_gru, case, "last")
    assert all(map(torch.equal, actual, expected))


def test_has_fast_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    for capabilities, expected in [({"avx512_bf16": True}, True), ({"amx_bf16": True}, True), ({"avx2": True}, False)]:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=capabilities: found, raising=False)
        assert gru_kernel.has_fast_bfloat16() is expected
    monkeypatch.delattr(torch.cpu, "get_capabilities")  # older releases do not tell
    assert gru_kernel.has_fast_bfloat16() is False


@with_1_2_and_4_threads
def test_is_deterministic() -> None:
    torch.manual_seed(0)
    gru = nn.GRU(50, 64, bidirectional=True)
    lengths = torch.randint(1, 30, (300,))
    index = torch.randint(0, 200, (int(lengths.sum()),))
    case = torch.randn(200, 50), lengths, gru
    runs = [gradients(bidirectional_gru, case, "states and last", index=index) for _ in range(4)]
    for repeated in runs[1:]:
        assert all(map(torch.equal, runs[0], repeated))


def test_a_sentence_does_not_depend_on_its_neighbours() -> None:
    torch.manual_seed(0)
    gru = nn.GRU(50, 64, bidirectional=True)
    lengths = torch.randint(1, 40, (100,))
    tokens = torch.randn(int(lengths.sum()), 50)
    with torch.inference_mode():
        states, last = bidirectional_gru(tokens, lengths, gru)
        start = 0
        for sentence, length in enumerate(lengths.tolist()):
            alone, alone_last = bidirectional_gru(
                tokens[start : start + length], lengths[sentence : sentence + 1], gru
            )
            torch.testing.assert_close(states[start : start + length], alone, rtol=0, atol=1e-6)
            torch.testing.assert_close(last[sentence], alone_last[0], rtol=0, atol=1e-6)
            start += length


@with_1_2_and_4_threads
def test_leaves_the_number_of_threads_alone(threads: int) -> None:
    case = make_case(LENGTHS["mixed"])
    bidirectional_gru(*case)[0].sum().backward()
    assert torch.get_num_threads() == threads
    seen: list[int] = []
    new_thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    new_thread.start()
    new_thread.join()
    assert seen == [threads]


def test_may_be_called_from_several_threads() -> None:
    case = make_case(LENGTHS["mixed"])
    expected, _ = bidirectional_gru(*case)
    results: list[Tensor] = []
    callers = [threading.Thread(target=lambda: results.append(bidirectional_gru(*case)[0])) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=30)
    assert len(results) == 6
    assert all(torch.equal(result, expected) for result in results)


def _sum_of_states(seed_case: list[int], results: multiprocessing.Queue[float]) -> None:
    torch.set_num_threads(2)
    with torch.inference_mode():
        results.put(bidirectional_gru(*make_case(seed_case))[0].sum().item())


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
def test_works_after_a_fork() -> None:
    expected = bidirectional_gru(*make_case(LENGTHS["mixed"]))[0].sum().item()  # starts the threads of the parent
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_sum_of_states, args=(LENGTHS["mixed"], results))
    child.start()
    try:
        assert results.get(timeout=30) == pytest.approx(expected)
    finally:
        child.kill()
        child.join()


def test_leaves_the_module_copyable() -> None:
    tokens, lengths, gru = make_case(LENGTHS["mixed"])
    expected, _ = bidirectional_gru(tokens, lengths, gru)
    for twin in [copy.deepcopy(gru), pickle.loads(pickle.dumps(gru))]:
        assert torch.equal(bidirectional_gru(tokens, lengths, twin)[0], expected)


@pytest.mark.parametrize("lengths", [[2, 2], [2, 0, 3], [6]])
def test_refuses_lengths_that_do_not_fit(lengths: list[int]) -> None:
    gru = nn.GRU(WIDTH, HIDDEN, bidirectional=True)
    with pytest.raises(ValueError, match="lengths"):
        bidirectional_gru(torch.randn(5, WIDTH), torch.tensor(lengths), gru)


@pytest.mark.parametrize("options", [{"bidirectional": False}, {"num_layers": 2}, {"bias": False}])
def test_refuses_other_kinds_of_gru(options: dict[str, bool | int]) -> None:
    gru = nn.GRU(WIDTH, HIDDEN, **{"bidirectional": True, **options})
    with pytest.raises(ValueError, match="one bi-directional layer"):
        bidirectional_gru(torch.randn(5, WIDTH), torch.tensor([5]), gru)
