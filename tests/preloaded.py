"""What forked processes would import one after the other: the server they are forked from does."""

from __future__ import annotations

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
