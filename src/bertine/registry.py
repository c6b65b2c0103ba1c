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
}

#: Objective of pre-training → module:class of its :class:`bertine.objectives.base.Objective`.
OBJECTIVES = {
    "mlm-nsp": "bertine.objectives.mlm_nsp:MlmNsp",
    "mlm": "bertine.objectives.mlm:Mlm",
}
