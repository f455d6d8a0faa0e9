"""The check of docstrings, comments and messages for plain English."""

import pytest

from lab.words import OPENINGS, findings, main

CASES = [
    ('def f():\n    """What a graph costs."""\n', 2, "docstring", "What ..."),
    ('class A:\n    b = 1\n    """(n,) whether it ends."""\n', 3, "docstring", "whether ..."),
    ("a = 1  # the dearest of them\n", 1, "comment", "dearest"),
    ("# as it\n# was put\n# up\n", 1, "comment", "put up"),
    ('raise ValueError(f"{a}: move it away to start anew")\n', 1, "message", "anew"),
    ('log.warning("nobody asked")\n', 1, "message", "nobody"),
]


@pytest.mark.parametrize(("source", "line", "kind", "found"), CASES)
def test_odd_words_are_found_where_people_read(source, line, kind, found):
    assert [(each.line, each.kind, each.found) for each in findings(source)] == [
        (line, kind, found)
    ]


def test_plain_english_and_code_pass():
    source = '"""Return the cost, or None if there is none."""\ntold = "What stands alone"\n'
    assert findings(source) == []


def test_a_finding_names_file_line_word_and_a_better_one(tmp_path, capsys):
    (tmp_path / "odd.py").write_text('"""How it ends."""\n')
    assert main([str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert f"{tmp_path / 'odd.py'}:1:" in said
    assert "How" in said
    assert OPENINGS["how"] in said
    (tmp_path / "odd.py").write_text('"""Return the end."""\n')
    assert main([str(tmp_path)]) == 0
