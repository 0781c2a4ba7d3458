"""Widths of halo rows: what is found is what trying everything finds; and what the links cost that they weigh."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from gpu_baselines.clock import Clock
from gpu_baselines.group import Group
from gpu_baselines.halos import message_cost
from gpu_baselines.halos.assigner import Pair, assigned, cost, grouped, terms_of
from gpu_baselines.halos.message_cost import LinkCosts, fitted, measured
from gpu_baselines.halos.quantise import WIDTHS
from tests.gpu_baselines.ranks import Device, LateGroup, on_ranks


def pair_of(rows: int, size: int, rng: np.random.Generator, theta: float = 1.0, gamma: float = 0.0) -> Pair:
    _, beta, values = grouped(np.exp(rng.normal(0, 2, rows)), 16, size)
    return Pair(beta, values, theta, gamma)


def by_trying(pairs: Sequence[Pair], balance: float) -> float:
    counts = [len(pair.values) for pair in pairs]
    terms = terms_of(pairs, balance)
    every = itertools.product(WIDTHS, repeat=sum(counts))
    cuts = np.cumsum(counts)[:-1]
    return min(float(terms.objective(*cost(pairs, np.split(np.array(widths), cuts)))) for widths in every)


# --- the problem ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_what_is_found_is_the_best_there_is(seed: int) -> None:
    """Pairs with links of their own, groups that do not come out even, pairs that send nothing."""
    rng = np.random.default_rng(seed)
    rows, size = [(5, 2, 0), (7,), (3, 3), (4, 0, 1), (6, 5), (2, 2, 2), (1,), (8, 4)][seed], 1 + seed % 3
    pairs = [pair_of(k, size, rng, rng.uniform(0.5, 2), rng.uniform(0, 50)) for k in rows]
    for balance in (0.0, 0.1, 0.5, 0.9, 1.0) if sum(len(pair.values) for pair in pairs) < 7 else (0.5,):
        found = terms_of(pairs, balance).objective(*cost(pairs, assigned(pairs, balance)))
        best = by_trying(pairs, balance)
        assert best - 1e-12 <= found <= best + 1e-9


def test_the_balance_goes_from_fastest_to_most_precise() -> None:
    pairs = [pair_of(60, 5, np.random.default_rng(1)), pair_of(40, 5, np.random.default_rng(2))]
    bits = [np.mean(np.concatenate(assigned(pairs, balance))) for balance in (0.05, 0.5, 0.95, 1.0)]
    assert bits == sorted(bits)
    assert bits[-1] == 8
    fastest = assigned(pairs, 0.0)
    assert set(fastest[0]) == {2}
    assert fastest[1].mean() > 2  # rule 4: this pair would only wait for the other


def test_rows_that_matter_more_have_no_fewer_bits() -> None:
    widths = assigned([pair_of(500, 10, np.random.default_rng(3))], 0.5)[0]
    assert np.all(np.diff(widths.astype(int)) <= 0)
    assert len(set(widths)) > 1


def test_groups_are_cut_from_the_largest_beta_down() -> None:
    beta = np.array([1.0, 5, 3, 9, 2])
    order, sums, values = grouped(beta, 10, 2)
    assert order.tolist() == [3, 1, 2, 4, 0]
    assert sums.tolist() == [14, 5, 1]
    assert values.tolist() == [20, 20, 10]
    assert [len(part) for part in grouped(np.zeros(0), 10, 2)] == [0, 0, 0]


def test_rows_that_never_vary_get_two_bits() -> None:
    pairs = [Pair(np.zeros(3), np.full(3, 8)), Pair(np.zeros(0), np.zeros(0, np.int64))]
    assert [widths.tolist() for widths in assigned(pairs, 0.5)] == [[2, 2, 2], []]
    assert [widths.size for widths in assigned(pairs[1:], 0.5)] == [0]


def test_the_costs_do_not_matter_where_all_links_are_alike() -> None:
    """The objective is normalised: what all pairs have in common cancels."""
    rng = np.random.default_rng(5)
    pairs = [pair_of(90, 4, rng) for _ in range(3)]
    slower = [Pair(pair.beta, pair.values, 1e-7, 3e-4) for pair in pairs]
    for one, other in zip(assigned(pairs, 0.5), assigned(slower, 0.5), strict=True):
        assert np.array_equal(one, other)


# --- the cost of links ------------------------------------------------------------------------------------------------


def test_a_line_is_found_through_its_points() -> None:
    nbytes = np.array([4e3, 6e4, 1e6])
    assert fitted(nbytes, 8 * nbytes * 2e-9 + 5e-5) == pytest.approx((2e-9, 5e-5))
    theta, gamma = fitted(nbytes, 8 * nbytes * 2e-9 * np.array([0.5, 0.9, 1.1]))  # would begin below zero
    assert gamma == 0
    assert 1e-9 < theta < 3e-9


def test_links_are_measured_pair_by_pair() -> None:
    """Three ranks whose exchanges take a computed time: rank 2 sends at half the rate."""

    def measure(group: Group) -> LinkCosts:
        seconds = [0.0]

        class Timed:
            rank, size, share, barrier = group.rank, group.size, group.share, group.barrier

            def exchange(self, sends: Sequence[torch.Tensor], recvs: Sequence[torch.Tensor], kind: str) -> None:
                assert kind == "setup"
                group.exchange(sends, recvs, kind)
                seconds[0] += sum(one.numel() for one in sends) * (2e-8 if group.rank == 2 else 1e-8) + 1e-4

        return measured(Timed(), torch.device("cpu"), Clock(), lambda: seconds[0])  # type: ignore[arg-type]

    found = on_ranks(3, measure)
    for costs in found:
        assert np.array_equal(costs.theta, found[0].theta)
    others = ~np.eye(3, dtype=bool)
    rates = np.array([[1.0], [1], [2]]) * 1e-8 / 8 * np.ones((1, 3))
    assert found[0].theta[others] == pytest.approx(rates[others], rel=1e-6)
    assert found[0].gamma[others] == pytest.approx(1e-4, rel=1e-3)


def test_a_message_costs_what_it_takes_and_not_what_launching_it_takes() -> None:
    """Over NCCL, exchanges return at once and are done later: messages cost next to nothing."""

    def measure(group: Group) -> LinkCosts:
        device = Device(0.004)
        return measured(LateGroup(group, device), torch.device("cpu"), Clock(device.synchronise))

    for costs in on_ranks(2, measure):
        seconds = costs.theta * 8 * message_cost.SIZES[-1] + costs.gamma
        assert min(seconds[0, 1], seconds[1, 0]) > 0.003


def test_a_slow_link_ends_its_measurement_early() -> None:
    sent: list[int] = []

    def measure(group: Group) -> None:
        def exchange(sends: Sequence[torch.Tensor], recvs: Sequence[torch.Tensor], kind: str) -> None:
            sent.append(sum(one.numel() for one in sends))
            ticks[0] += 1.0

        ticks = [0.0]
        group.exchange = exchange  # type: ignore[method-assign]
        measured(group, torch.device("cpu"), Clock(), lambda: ticks[0])

    on_ranks(2, measure)
    assert sent == [message_cost.SIZES[0]] * 2 * message_cost.REPEATS


def test_links_that_differ_by_noise_alone_are_alike() -> None:
    """So that two runs on one network assign the same widths."""

    def costs(*theta: float) -> LinkCosts:
        return LinkCosts(np.array([[0, theta[0]], [theta[1], 0]]), np.array([[0, 1e-5], [4e-5, 0]]))

    noisy, uneven = costs(1e-9, 1.6e-9), costs(1e-9, 4e-9)
    assert noisy.of(0, 1) == noisy.of(1, 0) == (1.0, 0.0)
    assert uneven.of(1, 0) == (4e-9, 4e-5)
    assert LinkCosts(np.zeros((1, 1)), np.zeros((1, 1))).are_alike
