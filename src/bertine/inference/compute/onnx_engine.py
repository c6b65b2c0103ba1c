"""An exported model's answers by ONNX Runtime, through the same tasks as the model's own.

Shape legend: B sequences, T tokens of the longest, K labels, D width of a vector.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from bertine.cores.launch import cores
from bertine.errors import BertineError
from bertine.files import check_regular, os_errors, sha256_file
from bertine.inference.compute.engine import BATCH_TOKENS
from bertine.inference.compute.forked import check_not_forked
from bertine.interop.export import INPUTS
from bertine.interop.exported import Exported
from bertine.models.config import Config
from bertine.models.encoded import BackboneOutput


class Graph(nn.Module):
    """A graph in place of a backbone: it is called like one, and what it gives stands where the
    states would be. Heads after it have nothing left to do.

    Args:
        path: of the ONNX file.
        dtype: of its weights, torch.float32 or torch.int8.
        threads: to compute with.

    Raises:
        BertineError: ONNX Runtime is not installed, or cannot read the file.
    """

    def __init__(self, path: Path, dtype: torch.dtype, threads: int) -> None:
        super().__init__()
        try:
            import onnxruntime
        except ImportError as error:
            raise BertineError(
                f"{path}: is run by ONNX Runtime, which is not installed; install it with: "
                "pip install onnxruntime"
            ) from error
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors
        options.intra_op_num_threads = threads
        check_regular(path)
        with os_errors(path, "reading it"), open(path, "rb"):
            pass
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # of a kind for each thing that may be wrong
            told = (str(error).splitlines() or [type(error).__name__])[0]
            raise BertineError(f"{path}: ONNX Runtime cannot read it ({told})") from error
        self.path, self.dtype = path, dtype
        self._process = os.getpid() if threads > 1 else None

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor,
        output_hidden_states: bool = False,
    ) -> BackboneOutput:
        """int64 [B, T] each, the mask may be bool. Logits fp32 [B, K], [B, T, K], of spans
        [B, T, 2], or vectors [B, D], [B, T, D]: under both names.

        Raises:
            BertineError: this process was forked after the graph was loaded.
        """
        if self._process is not None:
            check_not_forked(self._process)
        given = zip(INPUTS, (input_ids, attention_mask, token_type_ids), strict=True)
        inputs = {name: each.numpy().astype(np.int64, copy=False) for name, each in given}
        outputs = [torch.from_numpy(np.asarray(each)) for each in self._session.run(None, inputs)]
        found = outputs[0] if len(outputs) == 1 else torch.stack(outputs, -1)
        return BackboneOutput(found, found)


class _PairOutput(nn.Module):
    """The head of pairs that are encoded apart, all of which is in the graph."""

    def forward(self, graph: Graph, *inputs: Tensor) -> Tensor:
        return graph(*inputs).last_hidden_state


class GraphModel(nn.Module):
    """A graph with heads that change nothing: what a task's ``outputs`` takes in place of a
    :class:`~bertine.models.model.Model`.

    Attributes:
        config: of the model that was exported.
        backbone: the graph.
        heads: by the names that the task knows.
    """

    def __init__(self, config: Config, graph: Graph, heads: Sequence[str]) -> None:
        super().__init__()
        self.config, self.backbone = config, graph
        self.heads = nn.ModuleDict(
            {name: _PairOutput() if name == "pair_classifier" else nn.Identity() for name in heads}
        )
        self.eval()

    def fingerprint(self) -> str:
        """SHA-256 of the file, as hex digits; of one with its weights beside it, of both."""
        path = self.backbone.path
        files = [path, path.with_name(f"{path.name}.data")]
        return "".join(sha256_file(each) for each in files if each.exists())


class OnnxEngine:
    """What computes for an exported model, as an :class:`~bertine.inference.compute.engine.Engine`
    does for a model. May be shared by threads.

    Args:
        exported: the folder.
        precision: ``"auto"``, ``"fp32"`` or ``"int8"``.
        threads: to compute with; None: as many as PyTorch takes.
        heads: the names of the heads that a task asks for.

    Attributes:
        model: for a task's ``outputs``.
        backbone: the graph.
        precision: "fp32" or "int8".
        threads: it computes with.
        max_tokens: of a batch, with its padding.
        check: None, as what was exported was compared then.

    Raises:
        BertineError: it is not exported in that precision; ONNX Runtime is not installed, or
            cannot read the file.
    """

    def __init__(
        self,
        exported: Exported,
        precision: str,
        *,
        threads: int | None = None,
        heads: Sequence[str] = (),
    ) -> None:
        if threads is not None and threads < 1:
            raise BertineError(f"threads is {threads}, but must be at least 1")
        path, self.precision = exported.graph(precision)
        self.threads = threads or min(torch.get_num_threads(), cores())
        dtype = torch.int8 if self.precision == "int8" else torch.float32
        self.backbone = Graph(path, dtype, self.threads)
        self.model = GraphModel(exported.config, self.backbone, heads)
        self.max_tokens = BATCH_TOKENS
        self.check = None
        self._line = f"computing in {self.precision} by ONNX Runtime"
        if self.precision != "fp32" and path.name in exported.told:
            self._line += f"; {exported.told[path.name]} when it was exported"

    def lines(self) -> list[str]:
        """What a person should know of the choices."""
        return [self._line]


def refuse_device(exported: Exported, device: str | None) -> None:
    """
    Raises:
        BertineError: another device than the CPU is asked for.
    """
    if device not in (None, "cpu"):
        raise BertineError(
            f"{exported.folder}: an exported model is computed on the CPU here, not on {device!r}"
        )
