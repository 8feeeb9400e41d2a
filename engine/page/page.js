// SPDX-License-Identifier: Apache-2.0
// After tip.js. Adds pointing, sorting and filtering. The page is complete without it.
(() => {
  const make = (name, properties, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };

  const show = makeTip();

  // A row of the picture's table as lines "head: cell".
  const rowText = (table, row) =>
    [...row.cells].map((cell, i) => `${table.tHead.rows[0].cells[i].textContent}: ${cell.textContent}`).join("\n");

  const pictures = document.querySelectorAll(".picture");
  for (const picture of pictures) {
    // The browser's own tips would come on top of ours.
    const name = picture.querySelector(":scope > title");
    picture.setAttribute("aria-label", name.textContent);
    name.remove();
    for (const title of picture.querySelectorAll("title")) {
      title.parentNode.dataset.tip = title.textContent;
      title.remove();
    }
    const table = picture.closest("figure").querySelector("table");
    const numbers = (text) => text.split(" ").map(Number);
    const cross = document.createElementNS("http://www.w3.org/2000/svg", "path");
    cross.setAttribute("class", "cross");
    picture.append(cross);
    const at = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.getScreenCTM().inverse());
    picture.addEventListener("pointermove", (event) => {
      let text = event.target.dataset.tip, path = "";
      const { x, y } = at(event);
      if (picture.dataset.plot && !text) {
        const [left, right, top, bottom] = numbers(picture.dataset.plot), rows = table.tBodies[0].rows;
        if (x >= left && x <= right && y >= top && y <= bottom) {
          // Rows stand where their first column says: depths are not always evenly spaced.
          const xs = Array.from(rows, (row) => Number(row.cells[0].textContent.replaceAll(",", "")));
          const least = Math.min(...xs), extent = Math.max(...xs) - least || 1;
          const places = xs.map((value) => left + ((value - least) / extent) * (right - left));
          const i = places.reduce((best, place, row) => (Math.abs(place - x) < Math.abs(places[best] - x) ? row : best), 0);
          const line = places[i];
          text = rowText(table, rows[i]);
          path = `M${line},${top}V${bottom}`;
        }
      } else if (picture.dataset.grid) {
        const cell = cellAt(picture, event);
        if (cell) {
          const cells = table.tBodies[0].rows[cell.row].cells, heads = table.tHead.rows[0].cells;
          text = `${heads[0].textContent} ${cells[0].textContent}, ${heads[cell.column + 1].textContent}: ${cells[cell.column + 1].textContent}`;
          path = `M${cell.left},${cell.top}h${cell.width}v${cell.height}h${-cell.width}z`;
        }
      }
      cross.setAttribute("d", path);
      show(text, event);
    });
    picture.addEventListener("pointerleave", (event) => {
      cross.setAttribute("d", "");
      show("", event);
    });
  }

  // A click on a column's head sorts by it: numbers from the greatest, text from A; once more, the other way.
  const value = (cell) => (cell.classList.contains("n") ? Number(cell.dataset.v ?? cell.textContent.replaceAll(",", "")) : cell.textContent);
  const sort = (table, column, head) => {
    const numeric = head.classList.contains("n");
    const before = head.getAttribute("aria-sort"), first = numeric ? "descending" : "ascending", then = numeric ? "ascending" : "descending";
    const order = before === first ? then : first, sign = order === "ascending" ? 1 : -1;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const compare = (a, b) => (numeric ? a - b || 0 : a.localeCompare(b, "en", { numeric: true }));
    const rows = [...table.tBodies[0].rows].map((row) => [value(row.cells[column]), row]);
    table.tBodies[0].append(...rows.sort((a, b) => sign * compare(a[0], b[0])).map((pair) => pair[1]));
  };
  for (const table of document.querySelectorAll(".sortable table")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = make("button", { type: "button" }, ...head.childNodes);
      button.addEventListener("click", () => sort(table, column, head));
      head.append(button);
    });
  }

  // A field above a table keeps the rows that have all of its words.
  for (const box of document.querySelectorAll(".filterable")) {
    const rows = box.querySelector("tbody").rows;
    const count = make("span", { className: "muted" });
    count.setAttribute("role", "status");
    const input = make("input", { type: "search", autocomplete: "off" });
    const apply = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const text = [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = `${shown} of ${rows.length} rows`;
    };
    input.addEventListener("input", apply);
    box.before(make("div", { className: "filter" }, make("label", {}, "Filter ", input), count));
    apply();
  }
})();
