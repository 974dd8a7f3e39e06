"""Settings are checked before anything is loaded."""

from __future__ import annotations

import pytest

from halflabel import TextClassifier
from halflabel.errors import SettingError
from halflabel.settings import choose_settings
from halflabel.types import MAX_SEED


@pytest.mark.parametrize("seed", [-1, MAX_SEED + 1, 10**23])
def test_a_seed_out_of_range_is_named(seed: int) -> None:
    with pytest.raises(SettingError, match=f"the seed {seed} is out of range; .* from 0 to {MAX_SEED}"):
        choose_settings("multi-class", seed=seed)
    with pytest.raises(SettingError, match="out of range"):
        TextClassifier("ce", plan="frozen", random_state=seed).fit(["bread", "goal"], ["food", "sport"])
    assert choose_settings("multi-class", seed=MAX_SEED).seed == MAX_SEED
