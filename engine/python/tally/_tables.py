# SPDX-License-Identifier: Apache-2.0
"""Documents and tables of figures."""

from __future__ import annotations

import html
import re
from typing import Any, Dict, Iterable, List, Sequence, Tuple


class Table:
    """A table: ``columns`` are its headings, ``rows`` its cells as they are shown, ``values`` what they stand for."""

    def __init__(self, table: Dict[str, Any]) -> None:
        self.title: str = table["title"]
        self.columns: List[str] = table["columns"]
        self.rows: List[List[str]] = table["rows"]
        self.values: List[List[Any]] = [[_whole(value) for value in row] for row in table["values"]]
        self._text: str = table["text"]

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
        # With styles of its own, since notebooks align all cells to the right.
        sides = ["right" if all(_NUMBER.fullmatch(row[i]) for row in self.rows) else "left" for i in range(len(self.columns))]

        def line(tag: str, row: Sequence[str]) -> str:
            cells = "".join(f'<{tag} style="text-align:{side}">{html.escape(cell)}</{tag}>' for side, cell in zip(sides, row))
            return f"<tr>{cells}</tr>"

        title = '<caption style="caption-side:top;text-align:left;font-weight:bold;white-space:nowrap">' + html.escape(self.title)
        head = f'<thead>{line("th", self.columns)}</thead>' if any(self.columns) else ""
        return f'<table>{title}</caption>{head}<tbody>{"".join(line("td", row) for row in self.rows)}</tbody></table>'


def _whole(value: Any) -> Any:
    """The number of a text such as "1,234,567"; anything else is itself."""
    return int(value.replace(",", "")) if isinstance(value, str) and re.fullmatch(r"-?\d{1,3}(,\d{3})*", value) else value


# A figure with its unit, or none.
_NUMBER = re.compile(r"|[-+<]?[\d,]+(\.\d+)?( (%|[kMGTP]?i?B))?|partial")


def table_of(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """A table of values that are shown with separators of thousands."""
    values = [list(row) for row in rows]
    shown = [[f"{cell:,}" if isinstance(cell, int) else f"{cell:,.6g}" if isinstance(cell, float) else str(cell) for cell in row]
             for row in values]
    widths = [max([len(name)] + [len(row[i]) for row in shown]) for i, name in enumerate(columns)]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths))).rstrip()

    text = "\n".join([title, line(list(columns))] + [line(row) for row in shown])

    return Table({"title": title, "columns": list(columns), "rows": shown, "values": values, "text": text})


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


def beside(parts: Iterable[str]) -> str:
    """HTML side by side, as far as there is room."""
    return '<div style="display:flex;flex-wrap:wrap;align-items:flex-start;gap:0.5em 2em">' + "".join(parts) + "</div>"


def inline(figures: Sequence[Tuple[str, str]]) -> str:
    """SVG documents as HTML, each with what it says about itself below it."""
    made = []
    for name, svg in figures:
        about = re.search(r"<desc>(.*?)</desc>", svg, re.DOTALL)
        caption = f'<figcaption style="max-width:560px;font-size:smaller">{about[1]}</figcaption>' if about else ""
        # Always light: a notebook's colours are its own, and need not be the system's.
        picture = re.sub(r"@media \(prefers-color-scheme:dark\)\{.*?\n\}\n(?=</style>)", "", svg, flags=re.DOTALL)
        picture = picture.replace("<svg ", '<svg style="max-width:100%;height:auto" ', 1)
        style = 'class="tally-figure" style="margin:0;max-width:100%"'
        made.append(f'<figure {style} data-figure="{html.escape(name)}">{picture}{caption}</figure>')
    return beside(made)
