"""Fine-tuning as scikit-learn's estimators.

Pickles name a class by the module that it was in, and these were here: theirs are read for ever.
"""

from bertine.estimators.classifier import BertClassifier
from bertine.estimators.regressor import BertRegressor

__all__ = ["BertClassifier", "BertRegressor"]
