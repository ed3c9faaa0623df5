from tests import mutations


def test_each_mutant_applies_to_the_current_sources():
    assert mutations.check() == []
