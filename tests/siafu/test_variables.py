"""siafu.variables: what decides how a worker computes, taken from a run's environment."""

from __future__ import annotations

from siafu import variables


def test_a_worker_has_one_thread_a_locale_and_the_kernels_that_the_run_chose() -> None:
    run = {
        "OPENBLAS_CORETYPE": "Haswell",
        "OMP_NUM_THREADS": "8",
        "LANG": "tr_TR.UTF-8",
        "AWS_SECRET_ACCESS_KEY": "hidden",
    }
    assert variables.of_worker(run) == {
        "OPENBLAS_CORETYPE": "Haswell",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "LANG": "C.UTF-8",
        "TZ": ":UTC",
    }


def test_an_empty_choice_of_kernels_is_none() -> None:
    assert variables.kernels({"OPENBLAS_CORETYPE": ""}) == {}


def test_threads_are_those_of_every_library() -> None:
    assert variables.threads(3) == dict.fromkeys(variables.THREADS, "3")
