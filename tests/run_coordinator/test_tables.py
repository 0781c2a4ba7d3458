"""Tables in a notebook."""

from __future__ import annotations

from run_coordinator import tables


def test_a_long_table_is_cut_and_says_so() -> None:
    shown = tables.as_html("points", ["x"], [[number] for number in range(25)])
    assert shown.count("<td>") == tables.MOST_ROWS == 20
    assert shown.endswith("<p>5 more rows</p>")
    assert tables.as_html("points", ["x"], [[1]]).endswith("</table>")
