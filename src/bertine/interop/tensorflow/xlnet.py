"""XLNet as its authors' program writes it (zihangdai/xlnet: ``modeling.py``,
``function_builder.py``)."""

from __future__ import annotations

from bertine.interop.tensorflow.variables import Variables

_LAYER, _LAYER_HERE = "model/transformer/layer_{}", "layer.{}"

VARIABLES = Variables(
    modules=(
        (f"{_LAYER}/rel_attn/LayerNorm", f"{_LAYER_HERE}.rel_attn.layer_norm"),
        (f"{_LAYER}/ff/LayerNorm", f"{_LAYER_HERE}.ff.layer_norm"),
        (f"{_LAYER}/ff/layer_1", f"{_LAYER_HERE}.ff.layer_1"),
        (f"{_LAYER}/ff/layer_2", f"{_LAYER_HERE}.ff.layer_2"),
        # Misspelt in the program, and so in every checkpoint.
        ("model/sequnece_summary/summary", "sequence_summary.summary"),
        ("model/classification_*/logit", "logits_proj"),
        ("model/regression_*/logit", "logits_proj"),
        # Spans by a beam, which is left out.
        *(
            (f"model/{part}", part.replace("/", "."))
            for part in (
                "start_logits/dense",
                "end_logits/dense_0",
                "end_logits/dense_1",
                "end_logits/LayerNorm",
                "answer_class/dense_0",
                "answer_class/dense_1",
            )
        ),
    ),
    tensors=(
        ("model/transformer/word_embedding/lookup_table", "word_embedding.weight"),
        ("model/transformer/mask_emb/mask_emb", "mask_emb"),
        ("model/lm_loss/bias", "lm_loss.bias"),
        *(
            (f"{_LAYER}/rel_attn/{matrix}/kernel", f"{_LAYER_HERE}.rel_attn.{matrix}")
            for matrix in "qkvor"
        ),
    ),
    stacked=(
        *(
            (f"model/transformer/{bias}", f"{_LAYER_HERE}.rel_attn.{bias}", 2)
            for bias in ("r_w_bias", "r_r_bias", "r_s_bias")
        ),
        ("model/transformer/seg_embed", f"{_LAYER_HERE}.rel_attn.seg_embed", 3),
    ),
    classifier="logits_proj.bias",
    summary="sequence_summary.",
)
