"""Runs graph and tensor tasks on the server's GPU: Dorylus' GPU-only variant. No other file of the servers imports
torch.

The work is divided between device and host:

1. Published rows and edges lie on the device: a row goes there once, when it is published, and its sums come back
   once (``DeviceLinear``). The host's kernels compute layer 0's sum of constant features once, as with other backends.
2. The device computes products, layer normalisation, losses, and activations with a logarithm or an exponential
   (``Arithmetic``). Inputs are copied for each call, except weights and constants, whose copies stay.
3. The host computes additions, dropout masks and relu: they take less time than copying their operands there and back.
   Attention, typed edges and pairs use the host's kernels; the products of their models run on the device.

``servers.device = cpu`` runs the same on torch's CPU kernels: for tests.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from graph_server.aggregate import Gather
from graph_server.backends.cpu import CpuBackend
from graph_server.buffers import Index, Store
from graph_server.operators import Setting
from graph_server.operators.linear import Linear
from siafu import arithmetic as host
from siafu import extras, kernels, ops
from siafu.config import GPU_KEPT_SHARE, Config, Servers
from siafu.errors import ConfigError, GnnError
from siafu.models import ModelSpec
from siafu.ops import BFLOAT16, Activation
from siafu.sparse import Array, Rows, SparseRows
from siafu.tasks import Step

try:
    import torch
    from torch import Tensor
    from torch.nn import functional
except ImportError as error:
    raise ConfigError(f"servers.backend = gpu: needs torch ({error}); {extras.install('gpu')}") from error

#: Edges of a block of rows that int32 counts.
MOST_INT32 = 2**31 - 1


def device_of(servers: Servers, index: int) -> torch.device:
    """Returns the device of graph server ``index``: GPUs are dealt out in turn. Raises: ConfigError if there is no GPU
    and ``servers.device`` is not ``cpu``."""
    if servers.device == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigError("servers.backend = gpu: torch sees no GPU here; servers.device = cpu does without, for tests")
    return torch.device("cuda", index % torch.cuda.device_count())


class GpuBackend(CpuBackend):
    """Schedules tasks as the cpu backend does, and computes them on the device."""

    @classmethod
    def make(cls, config: Config, spec: ModelSpec, index: int, clock: Callable[[], float]) -> GpuBackend:
        ops = Arithmetic(Memory(device_of(config.servers, index)))
        return cls(spec, f"gpu{index}", clock, ops, parts=1, staleness=config.train.staleness)


# --- memory -----------------------------------------------------------------------------------------------------------


class Memory:
    """Host arrays on the device. Copies of arrays that cannot change stay there for as long as these live."""

    def __init__(self, device: torch.device, keep_bytes: int | None = None):
        """``keep_bytes``: the most bytes of copies that stay; None: ``GPU_KEPT_SHARE`` of the free memory."""
        if keep_bytes is None:
            free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 1 << 34
            keep_bytes = int(GPU_KEPT_SHARE * free)
        self.device, self.keep_bytes = device, keep_bytes
        # All mutable state; pool threads and the garbage collector get at it:
        self._lock = threading.RLock()
        self._kept: dict[int, tuple[weakref.ref[Array], Tensor]] = {}  # by the array's id
        self.held = 0  # bytes of them

    def put(self, X: Array, dtype: np.dtype[Any] | None = None) -> Tensor:
        """Returns X on the device, converted to ``dtype``. The tensor must not be changed."""
        base = X.base
        if isinstance(base, np.ndarray) and base.shape == X.shape[::-1] and _same(X, base.T):
            return self.put(base, dtype).T  # a transposed weight is another array each time
        found = self._copied(X) if X.flags.writeable else self._constant(X)
        if X.dtype == BFLOAT16:
            found = found.view(torch.bfloat16)
        return found if dtype is None else found.to(_torch_type(dtype))

    def _constant(self, X: Array) -> Tensor:
        with self._lock:
            kept = self._kept.get(id(X))
        if kept is not None and kept[0]() is X:
            return kept[1]
        copy = self._copied(X)
        with self._lock:
            if id(X) not in self._kept and self.held + X.nbytes <= self.keep_bytes:
                self._kept[id(X)] = weakref.ref(X, partial(self._forget, id(X), X.nbytes)), copy
                self.held += X.nbytes
        return copy

    def _forget(self, key: int, nbytes: int, gone: weakref.ref[Array]) -> None:
        with self._lock:
            del self._kept[key]
            self.held -= nbytes

    def _copied(self, X: Array) -> Tensor:
        whole = np.ascontiguousarray(X)
        if not whole.flags.writeable:
            whole = np.array(whole)  # torch wants no memory that it may not write to
        if whole.dtype == BFLOAT16:
            whole = whole.view(np.int16)
        with _room_on(self.device):
            return torch.from_numpy(whole).to(self.device)


def _same(X: Array, Y: Array) -> bool:
    return X.dtype == Y.dtype and X.strides == Y.strides and X.ctypes.data == Y.ctypes.data and X.ndim == 2


def _torch_type(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.float64 if dtype == np.float64 else torch.float32


def _rounded(X: Tensor) -> Tensor:
    return X.to(torch.bfloat16).to(X.dtype)


def _home(X: Tensor) -> Array:
    """Returns the tensor's values as an array on the host. On the CPU the two share memory."""
    found: Array = X.contiguous().cpu().numpy()
    return found


@contextmanager
def _room_on(device: torch.device) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise GnnError(
            f"{device}: out of memory: {str(error).splitlines()[0]}; more graph servers need less each"
        ) from error


def _csr(crow: Tensor, column: Tensor, value: Tensor, shape: tuple[int, int]) -> Tensor:
    kind = torch.int32 if value.numel() <= MOST_INT32 else torch.int64
    with warnings.catch_warnings():  # once in a process each: that CSR is a beta feature, that nothing is checked
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
        return torch.sparse_csr_tensor(crow.to(kind), column.to(kind), value, shape, check_invariants=False)


# --- tensor tasks -----------------------------------------------------------------------------------------------------


class Arithmetic:
    """``siafu.models.TensorOps`` on the device; arguments and results are arrays of the host."""

    def __init__(self, memory: Memory):
        self._memory = memory

    def matmul(self, X: Rows, W: Array, add: Array | None = None, *, rounds: bool = False) -> Array:
        out = self._product(X, W, rounds)
        if add is None:
            return out
        add += out
        return add

    def matmul_transposed(self, X: Rows, D: Array, *, rounds: bool = False) -> Array:
        return self._product(X, D, rounds, transposed=True)

    def _product(self, X: Rows, Y: Array, rounds: bool, *, transposed: bool = False) -> Array:
        with _room_on(self._memory.device):
            left, right = self._rows(X, Y.dtype, transposed=transposed), self._memory.put(Y)
            if rounds and isinstance(X, np.ndarray):  # as numbers of float32: of bfloat16, torch rounds the product too
                left, right = _rounded(left), _rounded(right)
            return _home(left @ right)

    column_sums = staticmethod(host.column_sums)
    dots = staticmethod(host.dots)
    pair_dots = staticmethod(host.pair_dots)
    pair_products = staticmethod(host.pair_products)
    pair_sums = staticmethod(host.pair_sums)
    squared_error = staticmethod(host.squared_error)
    segment_softmax = staticmethod(host.segment_softmax)
    segment_softmax_backward = staticmethod(host.segment_softmax_backward)

    def dropped(self, X: Rows, p: float, *, seed: int, epoch: int, layer: int, vertices: Array) -> Rows:
        return host.dropped(X, p, seed=seed, epoch=epoch, layer=layer, vertices=vertices)

    def activate(self, N: Array, kind: Activation, out: Array | None = None) -> Array:
        if kind in ("relu", "identity"):
            return host.activate(N, kind, out)
        X = self._memory.put(N)
        found = _home(torch.tanh(X) if kind == "tanh" else functional.elu(X))
        if out is None:
            return found
        out[...] = found
        return out

    def activate_backward(self, dH: Array, N: Array, kind: Activation) -> Array:
        if kind in ("relu", "identity"):
            return host.activate_backward(dH, N, kind)
        d, X = self._memory.put(dH), self._memory.put(N)
        return _home(d * (1 - torch.tanh(X) ** 2) if kind == "tanh" else d * torch.exp(X.clamp(max=0)))

    def layer_norm(self, P: Array, gain: Array, shift: Array) -> Array:
        put = self._memory.put
        return _home(functional.layer_norm(put(P), P.shape[1:], put(gain), put(shift), eps=ops.LAYER_NORM_EPS))

    def layer_norm_backward(self, dN: Array, P: Array, gain: Array) -> tuple[Array, Array, Array]:
        d, X = self._memory.put(dN), self._memory.put(P)
        X = X - X.mean(1, keepdim=True)
        inverse_std = torch.rsqrt((X**2).mean(1, keepdim=True) + ops.LAYER_NORM_EPS)
        X = X * inverse_std
        dX = d * self._memory.put(gain)
        dP = (dX - dX.mean(1, keepdim=True) - X * (dX * X).mean(1, keepdim=True)) * inverse_std
        return _home(dP), _home((d * X).sum(0)), _home(d.sum(0))

    def cross_entropy(self, logits: Array, labels: Array, smoothing: float = 0.0) -> tuple[float, Array]:
        if smoothing or not len(logits):
            return host.cross_entropy(logits, labels, smoothing)
        X, y = self._memory.put(logits), self._memory.put(labels.astype(np.int64, copy=False))
        log_share = functional.log_softmax(X, 1)
        loss = -log_share.gather(1, y[:, None]).double().sum()
        gradient = torch.exp(log_share).scatter_add_(1, y[:, None], -torch.ones_like(X[:, :1]))
        return float(loss), _home(gradient)

    def binary_cross_entropy(self, logits: Array, labels: Array) -> tuple[float, Array]:
        X, y = self._memory.put(logits), self._memory.put(labels, logits.dtype)
        num_classes = logits.shape[1]
        loss = functional.binary_cross_entropy_with_logits(X, y, reduction="none").double().sum() / num_classes
        return float(loss), _home((torch.sigmoid(X) - y) / num_classes)

    def _rows(self, X: Rows, dtype: np.dtype[Any], *, transposed: bool = False) -> Tensor:
        if not isinstance(X, SparseRows):
            rows = self._memory.put(X, dtype)
            return rows.T if transposed else rows
        indptr, indices, data, shape = X.indptr, X.indices, X.data, X.shape
        if transposed:  # on the host: sums in the order of rows, whatever device there is
            matrix = sp.csr_array((data, indices, indptr), shape=shape).T.tocsr()
            indptr, indices, data, shape = matrix.indptr, matrix.indices, matrix.data, matrix.shape
        put = self._memory.put
        return _csr(put(indptr), put(indices), put(data, dtype), shape)


# --- graph tasks ------------------------------------------------------------------------------------------------------


class DeviceStore:
    """``graph_server.buffers.Store`` on the device. Rows with storage bfloat16 are rounded to it, but take the space of
    float32."""

    def __init__(self, num_rows: int, width: int, storage: str, device: torch.device):
        self.storage = storage
        self._memory = Memory(device, keep_bytes=0)
        self._value = np.dtype(np.float64 if storage == "float64" else np.float32)
        with _room_on(device):
            self.rows = torch.zeros(num_rows, width, dtype=_torch_type(self._value), device=device)

    @property
    def travelling(self) -> tuple[int, np.dtype[Any]]:
        return self.rows.shape[1], BFLOAT16 if self.storage == "bfloat16" else np.dtype(self.storage)

    def write(self, place: Index, *columns: Array, scale: Array | None = None) -> None:
        (rows,) = columns
        values = self._memory.put(rows, self._value)
        if scale is not None:
            values = values * self._memory.put(scale, self._value)[:, None]
        if self.storage == "bfloat16":
            values = values.to(torch.bfloat16)
        self.rows[self._where(place)] = values.to(self.rows.dtype)

    def read(self, place: Index) -> Array:
        return _home(self.rows[self._where(place)].clone())

    def cut(self, place: Index) -> Array:
        rows = self.read(place)
        return kernels.to_bfloat16(rows) if self.storage == "bfloat16" else rows

    def paste(self, place: Index, rows: Array) -> None:
        self.write(place, rows)

    def _where(self, place: Index) -> slice | Tensor:
        return place if isinstance(place, slice) else self._memory.put(place.astype(np.int64, copy=False))


class DeviceEdges:
    """The edges of a Gather on the device, with the factors of their sums."""

    def __init__(self, gather: Gather, dtype: np.dtype[Any], device: torch.device):
        put = Memory(device, keep_bytes=0).put
        edges = gather.edges
        ones = np.broadcast_to(dtype.type(1), len(edges.indices))
        self._indptr = np.asarray(edges.indptr)
        self._indices = put(np.asarray(edges.indices))
        self._weight = put(ones if edges.weight is None else np.asarray(edges.weight), dtype)
        self._scale = None if gather.target_scale is None else put(gather.target_scale, dtype)
        self._add_self, self._device = gather.add_self, device
        self._blocks: dict[tuple[int, int, int], Tensor] = {}  # of a run of targets; they share the edges' memory

    def __call__(self, start: int, stop: int, X: Tensor, factor: float) -> Array:
        """Returns the sums of the targets ``start:stop`` over rows X [inner + ghosts, F], as ``Gather`` defines them,
        times ``factor``: [stop - start, F]."""
        with _room_on(self._device):
            Z = self._block(start, stop, len(X)) @ X
            if self._add_self:
                Z += X[start:stop]
            if self._scale is not None:
                Z *= self._scale[start:stop, None]
            return _home(Z if factor == 1.0 else Z.mul_(factor))

    def _block(self, start: int, stop: int, num_columns: int) -> Tensor:
        key = (start, stop, num_columns)
        if key not in self._blocks:
            first, last = int(self._indptr[start]), int(self._indptr[stop])
            crow = torch.from_numpy(self._indptr[start : stop + 1] - first).to(self._device)
            shape = (stop - start, num_columns)
            self._blocks[key] = _csr(crow, self._indices[first:last], self._weight[first:last], shape)
        return self._blocks[key]


class DeviceLinear(Linear):
    """The operator "linear" of servers with a GPU."""

    def __init__(self, setting: Setting):
        super().__init__(setting)
        self._device = device_of(setting.config.servers, setting.shard.index)
        into = DeviceEdges(self.gathers[False], setting.dtype, self._device)
        same = self.gathers[True] is self.gathers[False]
        self._edges = {
            False: into,
            True: into if same else DeviceEdges(self.gathers[True], setting.dtype, self._device),
        }

    def store(self, step: Step, num_rows: int) -> Store:
        return DeviceStore(num_rows, self.model.width(str(step.publishes)), self.setting.storage, self._device)

    def summed(self, step: Step, store: Store, start: int, stop: int, own: Array | None, factor: float) -> Array:
        assert isinstance(store, DeviceStore)
        Z = self._edges[step.backward](start, stop, store.rows, factor)
        return Z if own is None else np.add(Z, own, out=Z)
