"""What forked processes would import one after the other: the server they are forked from does."""

from __future__ import annotations

import torch._dynamo
import torch._refs
import torch.distributed.fsdp
import torch.nn.parallel  # noqa: F401
import transformers

import bertine.cli
import bertine.inference.predictor
import bertine.training.finetuning.finetune
import bertine.training.pretraining.pretrain  # noqa: F401

#: transformers imports its modules when they are asked for.
_ASKED_FOR = (
    transformers.AutoTokenizer,
    transformers.BertForPreTraining,
    transformers.TrainingArguments,
)
