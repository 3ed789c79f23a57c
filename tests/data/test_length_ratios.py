"""The limit of the length of translations."""

import numpy as np
import pytest

from fairseq_plugins.data.length_ratios import length_ratio
from fairseq_plugins.data.prepared_folder import Prepared


@pytest.mark.parametrize("target_per_source", [0.5, 1.0, 7.3])
def test_the_limit_holds_for_999_pairs_of_1000(target_per_source, tmp_path):
    draw = np.random.default_rng(1)
    source = draw.integers(1, 60, 20_000)
    target = source * target_per_source * draw.normal(1, 0.1, len(source))
    target = np.maximum(1, target).astype(int)
    target[::2000] = 5000  # 10 of 20,000 pairs, which must not set the limit
    ratio = length_ratio(source, target)
    record = f'{{"length_ratios": {{"de-en": {ratio}}}}}'
    (tmp_path / "preparation.json").write_text(record)
    limit = Prepared(tmp_path).length_limit("de", "en")
    within = np.array([t <= limit(s + 1) for s, t in zip(source, target)])
    assert 0.999 <= within.mean() < 1
    assert limit(20) <= max(34, 20 * target_per_source * 1.5 + 10)
    if target_per_source <= 1:
        assert limit(20) == 34  # 1.2 times the source plus 10


def test_a_folder_without_a_ratio_has_a_stated_limit(tmp_path):
    for text in ("{}", '{"length_ratios": {"de-en": "1"}}', '{"length_ratios": {"de-en": -1}}'):
        (tmp_path / "preparation.json").write_text(text)
        limit = Prepared(tmp_path).length_limit("de", "en")
        assert [limit(n) for n in (5, 100, 150)] == [200, 200, 300]
