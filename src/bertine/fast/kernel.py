"""Compute layers like BERT's in products of bytes by the compiled kernel (``int8.c``).

It needs AVX-512 VNNI, and a C compiler when Bertine is installed; without either, 8-bit layers are
those of :mod:`bertine.fast.int8`. A whole stack of layers is one call: for a text of 16 tokens
PyTorch takes longer to call its products than the processor to compute them. Scales are those of
each row, so states do not depend, to the bit, on the other texts of a batch.

Channels with large values would make the steps of the others coarse, so they are divided by factors
before they are rounded (:func:`bertine.fast.int8.smoothing`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_float, c_int64, c_void_p
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bertine.fast.backbone import LayerPart, PackedBackbone
from bertine.fast.int8 import LayerRanges, smoothing
from bertine.fast.layers import PaddedRows, Rows, UnpaddedRows, scaled_queries
from bertine.models.config import Config
from bertine.models.precision import allowed_threads, kernel_library

_ACTIVATIONS = {"gelu": 0, "gelu_new": 1, "gelu_pytorch_tanh": 1, "relu": 2}
#: BLOCK and PANEL of ``int8.c``, and the numbers of a register.
_BLOCK, _PANEL, _REGISTER = 256, 64, 16


class _Product(ctypes.Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("weight", "scale", "bias", "factor")),
        ("outputs", c_int64),
    )


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, _Product) for name in ("qkv", "out", "up", "down")),
        ("norms", c_void_p * 4),
    )


class _Encoder(ctypes.Structure):
    _fields_ = (
        ("layers", c_void_p),
        *((name, c_int64) for name in ("count", "size", "inner", "heads", "act")),
        ("eps", c_float),
    )


def can_compute(config: Config) -> bool:
    """Return whether the kernel is there and has layers of the sizes of `config`."""
    head = config.hidden_size // config.num_attention_heads
    fits = all(size % _REGISTER == 0 for size in (head, config.intermediate_size))
    return fits and config.hidden_act in _ACTIVATIONS and kernel_library() is not None


class KernelBackbone(PackedBackbone):
    """A packed backbone whose layers are computed by the compiled kernel.

    Args:
        backbone: on the CPU, see :class:`bertine.fast.backbone.PackedBackbone`;
            :func:`can_compute` is true of its config.
        ranges: of the layers' activations.

    Attributes:
        threads: the number of threads of the kernel's own; None: as many as PyTorch computes with.
    """

    threads: int | None = None

    def __init__(self, backbone: Any, ranges: Sequence[LayerRanges]) -> None:
        super().__init__(backbone, torch.int8, ranges)

    def _pack_layers(self, backbone: Any, ranges: Sequence[LayerRanges] | None) -> None:
        """Pack the layers; their input is not divided."""
        config, passes = self.config, self.config.passes
        assert ranges is not None
        self._kept: list[Any] = []
        layers = [
            self._layer(layer, seen) for layer, seen in zip(backbone.layers, ranges, strict=True)
        ]
        pointers = (c_void_p * len(passes))(*(ctypes.addressof(layers[i]) for i in passes))
        self._kept += [layers, pointers]
        self._encoder = _Encoder(
            ctypes.addressof(pointers),
            len(passes),
            config.hidden_size,
            config.intermediate_size,
            backbone.layers[0].attention.heads,
            _ACTIVATIONS[config.hidden_act],
            config.layer_norm_eps,
        )
        self.layers = [partial(self.encode, begin=i, end=i + 1) for i in range(len(passes))]

    def _layer(self, layer: Any, seen: LayerRanges) -> _Layer:
        attention = layer.attention
        weight, bias = scaled_queries(attention.qkv, attention.heads)
        packed = _Layer(
            self._product(weight, bias, smoothing(seen.qkv, weight)),
            self._product(attention.out.weight, attention.out.bias),
            self._product(layer.up.weight, layer.up.bias, smoothing(seen.up, layer.up.weight)),
            self._product(layer.down.weight, layer.down.bias),
        )
        norms = layer.attention_norm, layer.output_norm
        packed.norms[:] = [self._keep(x) for norm in norms for x in (norm.weight, norm.bias)]
        return packed

    def _product(self, weight: Tensor, bias: Tensor, divisor: Tensor | None = None) -> _Product:
        """Round a weight fp32 [F, K]; its inputs are divided by `divisor`, fp32 [K]."""
        outputs, inputs = weight.shape
        fill = -outputs % _PANEL
        weight = F.pad(weight if divisor is None else weight * divisor, (0, 0, 0, fill))
        scales = []
        rounded = torch.empty(weight.shape, dtype=torch.uint8)
        for part, to in zip(weight.split(_BLOCK, 1), rounded.split(_BLOCK, 1), strict=True):
            scale = part.abs().amax(1).clamp_min_(1e-12) / 127
            to.copy_((part / scale[:, None]).round_() + 128)
            scales.append(scale)
        panels = rounded.view(-1, _PANEL, inputs // 4, 4).permute(0, 2, 1, 3)
        return _Product(
            self._keep(panels),
            self._keep(torch.stack(scales)),
            self._keep(F.pad(bias.float(), (0, fill))),
            None if divisor is None else self._keep(1 / divisor),
            outputs,
        )

    def _keep(self, x: Tensor) -> int:
        """Keep a copy of x as long as the backbone, and return its address."""
        self._kept.append(x.detach().clone(memory_format=torch.contiguous_format))
        return int(self._kept[-1].data_ptr())

    def _rows(self, sequences: int, length: int, lengths: Tensor | None) -> Rows:
        if sequences == 1:
            return PaddedRows(1, length)
        if lengths is None:
            lengths = torch.full((sequences,), length)
        return UnpaddedRows.without_groups(lengths)

    def compute(self, part: LayerPart, x: Tensor, rows: Rows) -> Tensor:
        last = len(self.layers) - 1
        if part == "before last":
            return self.encode(x, rows, 0, last)
        return self.encode(x, rows, last, last + 1, first=part == "first of last")

    def encode(self, x: Tensor, rows: Rows, begin: int, end: int, first: bool = False) -> Tensor:
        """Compute the layers from `begin` to before `end`.

        Args:
            x: fp32 [N, H], the states before them.
            first: return the states of first tokens only; `end` is the last layer's.

        Returns:
            fp32 [N, H], with `first` [B, H].

        Raises:
            MemoryError: there is no memory for activations.
        """
        kernel = kernel_library()
        assert kernel is not None
        x = x.clone(memory_format=torch.contiguous_format)  # the kernel changes it
        if isinstance(rows, PaddedRows):
            starts = torch.arange(rows.sequences + 1) * rows.length
        else:
            starts = F.pad(rows.lengths.cumsum(0), (1, 0))
        to = x.new_empty(rows.sequences, x.shape[1]) if first else None
        failed = kernel.encode(
            ctypes.byref(self._encoder),
            c_void_p(x.data_ptr()),
            c_void_p(starts.data_ptr()),
            c_int64(rows.sequences),
            c_int64(begin),
            c_int64(end),
            c_void_p(None if to is None else to.data_ptr()),
            c_int64(allowed_threads(self.threads or torch.get_num_threads())),
        )
        if failed:
            raise MemoryError("no memory for the activations of a batch")
        return x if to is None else to
