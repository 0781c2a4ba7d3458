"""Environment variables that set the threads of a process's BLAS, and the kernels that BLAS and NumPy choose.

Both decide the last bits of a dense product. So each launcher takes them from here: workers get the same variables on
this machine, on Ray, on LocalStack and on AWS.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
#: The user's choice of kernels: OpenBLAS, MKL, and NumPy's own loops.
KERNELS = (
    "OPENBLAS_CORETYPE",
    "OPENBLAS_L2_SIZE",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "NPY_ENABLE_CPU_FEATURES",
    "NPY_DISABLE_CPU_FEATURES",
)
LOCALE = {"LANG": "C.UTF-8", "TZ": ":UTC"}


def threads(count: int = 1) -> dict[str, str]:
    """Returns variables that limit BLAS and OpenMP to ``count`` threads. One by default: intervals already run in
    parallel, and bits must not depend on the number of cores."""
    return dict.fromkeys(THREADS, str(count))


def kernels(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the choice of kernels in ``environment``; empty if the libraries choose by the processor."""
    return {name: environment[name] for name in KERNELS if environment.get(name)}


def of_worker(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the variables of a tensor worker whose run is started in ``environment``: one thread, the run's choice of
    kernels, Lambda's time zone and a locale that every machine has."""
    return {**LOCALE, **kernels(environment), **threads()}
