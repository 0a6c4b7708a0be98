import numpy as np
import pytest

from pytest_gemm.regions import Region, ranges


def region(*marked, shape=(48, 80)):
    mask = np.zeros(shape, bool)
    for index in marked:
        mask[index] = True
    return Region.of(mask)


@pytest.mark.parametrize(
    ("marked", "text"),
    [
        ((np.s_[:],), "all of C"),
        ((np.s_[5],), "row 5"),
        ((np.s_[5:9],), "rows 5..8"),
        ((np.s_[47],), "row 47"),
        ((np.s_[32:],), "rows 32..47 (the last partial tile)"),
        ((np.s_[38:],), "rows 38..47 (the last 10)"),
        ((np.s_[::16],), "rows 0, 16, 32"),
        ((np.s_[::5],), "rows 0, 5, 10, 15, ..."),
        ((np.s_[:, 7],), "column 7"),
        ((np.s_[:, 64:],), "columns 64..79 (the last partial tile)"),
        ((np.s_[40:], np.s_[:, 70:]), "rows 40..47 (the last 8) and columns 70..79 (the last 10)"),
        ((np.s_[:, 1:],), "columns 1..79 (the last 79)"),
        ((np.s_[1:],), "rows 1..47 (the last 47)"),
        ((np.s_[1:], np.s_[:, 1:]), "all of C"),
        ((np.s_[:, :72], np.s_[5, 75]), "all of C"),
        ((np.s_[3, 4],), "row 3, column 4"),
        ((np.s_[16:32, 32:48],), "rows 16..31, columns 32..47"),
        ((np.s_[2, 3], np.s_[40, 70]), "scattered over rows 2, 40, columns 3, 70"),
    ],
)
def test_regions_in_words(marked, text):
    assert str(region(*marked)) == text


def test_elements_that_are_right_by_chance_do_not_hide_a_region():
    mask = np.zeros((48, 80), bool)
    mask[32:] = True
    mask[33, ::7] = False
    assert str(Region.of(mask)) == "rows 32..47 (the last partial tile)"


def test_tails():
    assert region(np.s_[38:]).last_rows == 10
    assert region(np.s_[38:]).last_columns == 0
    assert region(np.s_[:, 70:]).last_columns == 10
    assert region(np.s_[38:47]).last_rows == 0
    assert region(np.s_[38:], np.s_[:, 70:]).last_rows == 0


@pytest.mark.parametrize(
    ("marked", "is_residue"),
    [
        ((np.s_[32:],), True),
        ((np.s_[:, 64:],), True),
        ((np.s_[32:], np.s_[:, 64:]), True),
        ((np.s_[38:],), False),
        ((np.s_[32:], np.s_[:, 70:]), False),
        ((np.s_[:],), False),
        ((np.s_[3, 4],), False),
    ],
)
def test_residues(marked, is_residue):
    assert region(*marked).is_residue is is_residue


def test_ranges():
    assert ranges([]) == ""
    assert ranges([0, 1, 2, 5, 7, 8]) == "0..2, 5, 7..8"
    assert ranges([1, 3, 5, 7, 9]) == "1, 3, 5, 7, ..."
    assert ranges([1, 3, 5], most=1) == "1, ..."
