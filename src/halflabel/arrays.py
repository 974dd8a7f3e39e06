"""Names of numpy's array types, for signatures."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]
Floats = NDArray[np.float32]
Columns = NDArray[np.integer]  # the class of each text
Mask = NDArray[np.bool_]
