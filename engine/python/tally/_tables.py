# SPDX-License-Identifier: Apache-2.0
"""Documents and tables of figures."""

from __future__ import annotations

import html
from typing import Any, Dict, Iterable, List, Sequence, Tuple


class Table:
    """A table: ``columns`` are its headings, ``rows`` its cells as they are shown, ``values`` what they stand for."""

    def __init__(self, table: Dict[str, Any]) -> None:
        self.title: str = table["title"]
        self.columns: List[str] = table["columns"]
        self.rows: List[List[str]] = table["rows"]
        self.values: List[List[Any]] = table["values"]
        self._text: str = table["text"]
        self._html: str = table["html"]

    def to_dict(self) -> Dict[str, List[Any]]:
        """The values by column. Columns without a heading are called "0", "1" and so on."""
        names = [name or str(i) for i, name in enumerate(self.columns)]
        return {name: [row[i] for row in self.values] for i, name in enumerate(names)}

    def to_pandas(self) -> Any:
        """The values as a pandas.DataFrame. ImportError: pandas is not installed."""
        import pandas

        return pandas.DataFrame(self.to_dict())

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f"<h4>{html.escape(self.title)}</h4>{self._html}"


def table_of(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """A table of values that are shown with separators of thousands."""
    values = [list(row) for row in rows]
    shown = [[f"{cell:,}" if isinstance(cell, int) else f"{cell:,.6g}" if isinstance(cell, float) else str(cell) for cell in row]
             for row in values]
    widths = [max([len(name)] + [len(row[i]) for row in shown]) for i, name in enumerate(columns)]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths))).rstrip()

    text = "\n".join([title, line(list(columns))] + [line(row) for row in shown])

    def cells(tag: str, row: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in row) + "</tr>"

    markup = "<table>" + cells("th", columns) + "".join(cells("td", row) for row in shown) + "</table>"
    return Table({"title": title, "columns": list(columns), "rows": shown, "values": values, "text": text, "html": markup})


class Document:
    """Figures with names. ``to_dict()`` has all of them, as the command's ``--json`` has."""

    def __init__(self, document: Dict[str, Any], text: str) -> None:
        self._document = document
        self._text = text

    def to_dict(self) -> Dict[str, Any]:
        """All figures, as dicts, lists, numbers and texts: the document of the command's --json."""
        return self._document

    def __repr__(self) -> str:
        return self._text.rstrip("\n")

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self._text)}</pre>"


def inline(figures: Sequence[Tuple[str, str]]) -> str:
    """SVG documents one below another, as HTML."""
    return "".join(f'<div class="tally-figure" id="{html.escape(name)}">{svg}</div>' for name, svg in figures)
