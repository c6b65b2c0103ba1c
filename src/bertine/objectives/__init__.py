"""What pre-training minimizes, by name."""

from __future__ import annotations

from bertine.errors import BertineError
from bertine.objectives.mlm import Mlm
from bertine.objectives.mlm_nsp import MlmNsp

#: The paper's first.
OBJECTIVES: dict[str, type[MlmNsp] | type[Mlm]] = {kind.name: kind for kind in (MlmNsp, Mlm)}


def objective(name: str, *, input_format: str | None = None) -> MlmNsp | Mlm:
    """The objective `name`, one of `OBJECTIVES`.

    Args:
        name: "mlm-nsp" or "mlm".
        input_format: what the sequences are made of, to be checked; see
            :mod:`bertine.data.instances.formats`.

    Raises:
        BertineError: there is no such objective, or it cannot be had with that format.
    """
    if name not in OBJECTIVES:
        raise BertineError(f"objective is {name!r}, but must be one of {', '.join(OBJECTIVES)}")
    chosen = OBJECTIVES[name]()
    if input_format is not None and input_format not in chosen.input_formats:
        raise BertineError(
            f"objective {name} works on input_format {' or '.join(chosen.input_formats)}, not on "
            f"{input_format}" + ("; use objective mlm with it" if name != "mlm" else "")
        )
    return chosen
