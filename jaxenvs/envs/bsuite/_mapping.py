"""Random numbers that equal bsuite's, for the mappings that define its tasks."""

import numpy as np

from jaxenvs.errors import ParameterError, check_integer


def mapping_generator(name: str, seed: int) -> np.random.RandomState:
    """Returns NumPy's old generator. bsuite's tasks are defined by its bits.

    Raises:
        ParameterError: the seed is not an integer from 0 to 2**32 - 1.
    """
    check_integer(ParameterError, f"{name} got mapping_seed", seed, 0)
    if seed >= 2**32:
        raise ParameterError(f"{name} got mapping_seed={seed}; it must be below 2**32.")
    return np.random.RandomState(seed)
