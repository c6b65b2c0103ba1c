"""Names of what there is, and where it is. Imports nothing heavy, so that the command line can list
the names.
"""

from __future__ import annotations

#: Model type → module:constant of its :class:`bertine.interop.family.Family`.
FAMILIES = {
    "bert": "bertine.interop.bert:FAMILY",
    "roberta": "bertine.interop.roberta:FAMILY",
    "distilbert": "bertine.interop.distilbert:FAMILY",
    "xlm-roberta": "bertine.interop.roberta:XLM_ROBERTA",
    "camembert": "bertine.interop.roberta:CAMEMBERT",
    "albert": "bertine.interop.albert:FAMILY",
    "electra": "bertine.interop.electra:FAMILY",
    "mobilebert": "bertine.interop.mobilebert:FAMILY",
    "deberta-v2": "bertine.interop.deberta:FAMILY",
    "modernbert": "bertine.interop.modernbert:FAMILY",
    "openai-gpt": "bertine.interop.openai_gpt:FAMILY",
    "gpt-lstm": "bertine.interop.gpt_lstm:FAMILY",
    "bart": "bertine.interop.bart:FAMILY",
    "xlnet": "bertine.interop.xlnet:FAMILY",
}

#: Models of words, which are no encoders of pieces: model type → module:class of what turns texts
#: into vectors with one (a subclass of :class:`bertine.Embedder`).
WORD_MODELS = {
    "elmo": "bertine.inference.embedding.elmo_embedder:ElmoEmbedder",
    "model2vec": "bertine.inference.static_vectors.embedder:StaticEmbedder",
}

#: Preset → model type.
PRESETS = {
    "bert-tiny": "bert",
    "bert-mini": "bert",
    "bert-small": "bert",
    "bert-medium": "bert",
    "bert-base": "bert",
    "bert-large": "bert",
    "roberta-base": "roberta",
    "roberta-large": "roberta",
    "distilbert-base": "distilbert",
    "xlm-roberta-base": "xlm-roberta",
    "xlm-roberta-large": "xlm-roberta",
    "camembert-base": "camembert",
    "albert-base": "albert",
    "albert-large": "albert",
    "albert-xlarge": "albert",
    "albert-xxlarge": "albert",
    "electra-small": "electra",
    "electra-base": "electra",
    "electra-large": "electra",
    "mobilebert-uncased": "mobilebert",
    "mobilebert-tiny": "mobilebert",
    "ib-bert-large": "mobilebert",
    "deberta-v3-xsmall": "deberta-v2",
    "deberta-v3-small": "deberta-v2",
    "deberta-v3-base": "deberta-v2",
    "modernbert-base": "modernbert",
    "modernbert-large": "modernbert",
    "modern-tiny": "modernbert",
    "modern-mini": "modernbert",
    "modern-small": "modernbert",
    "openai-gpt": "openai-gpt",
    "gpt-tiny": "openai-gpt",
    "gpt-mini": "openai-gpt",
    "gpt-small": "openai-gpt",
    "lstm-mini": "gpt-lstm",
    "gpt-mini-bilstm": "gpt-lstm",
    "bart-base": "bart",
    "bart-large": "bart",
    "bart-tiny": "bart",
    "bart-mini": "bart",
    "bart-small": "bart",
    "xlnet-base-cased": "xlnet",
    "xlnet-large-cased": "xlnet",
    "xlnet-tiny": "xlnet",
    "xlnet-mini": "xlnet",
    "xlnet-small": "xlnet",
}

#: Names of the configurations of Google's programs → the model types that they may be of: the first
#: that has a key of its own there, else the last (:mod:`bertine.interop.tensorflow`).
TENSORFLOW_CONFIGS = {
    "bert_config.json": ("mobilebert", "bert"),
    "albert_config.json": ("albert",),
    "xlnet_config.json": ("xlnet",),
}

#: Objective of pre-training → module:class of its :class:`bertine.objectives.base.Objective`.
OBJECTIVES = {
    "mlm-nsp": "bertine.objectives.mlm_nsp:MlmNsp",
    "mlm": "bertine.objectives.mlm:Mlm",
    "mlm-sop": "bertine.objectives.mlm_sop:MlmSop",
    "mlm-neighbours": "bertine.objectives.mlm_neighbours:MlmNeighbours",
    "rtd": "bertine.objectives.rtd:Rtd",
    "clm": "bertine.objectives.clm:Clm",
    "denoising": "bertine.objectives.denoising:Denoising",
    "plm": "bertine.objectives.plm:Plm",
}
