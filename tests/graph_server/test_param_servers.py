"""Which parameter server an interval uses."""

from __future__ import annotations

from graph_server.param_servers import ParamServers


def test_intervals_of_a_run_share_one_and_the_loads_stay_even():
    servers = ParamServers(index=0, count=2, num_intervals=8)
    assert servers.per_run == 2
    assert [servers.use(interval) for interval in range(8)] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert servers.stashes == 8


def test_graph_servers_begin_with_different_ones():
    assert [ParamServers(index, 3, 3).use(0) for index in range(3)] == [0, 1, 2]


def test_an_interval_keeps_its_own_until_it_is_through():
    servers = ParamServers(index=0, count=2, num_intervals=2)
    assert [servers.use(0), servers.use(1), servers.use(0)] == [0, 1, 0]
    assert servers.release(0) == 0
    assert servers.stashes == 1
    servers.told(0, version=1, load=5)
    assert servers.use(0) == 1


def test_what_others_have_there_counts_as_it_was_said_last():
    servers = ParamServers(index=0, count=2, num_intervals=1)
    servers.told(0, version=2, load=1)
    servers.told(0, version=1, load=9)  # came late
    servers.told(1, version=2, load=2)
    assert servers.use(0) == 0


def test_the_slowest_has_taken_the_fewest_steps():
    servers = ParamServers(index=0, count=2, num_intervals=1)
    servers.told(0, version=3, load=0)
    assert servers.slowest == 0
    servers.begin(2)
    assert servers.slowest == 2


def test_who_needs_no_stash_asks_them_in_turn():
    servers = ParamServers(index=0, count=2, num_intervals=4)
    assert [servers.first(interval) for interval in range(4)] == [0, 1, 0, 1]
    assert servers.stashes == 0
