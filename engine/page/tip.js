// SPDX-License-Identifier: Apache-2.0
// What the report and the chat share: what is under the pointer, in words.
"use strict";

// A function of a text and the pointer's event that shows the text beside the pointer; nothing where the text is empty.
function makeTip() {
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  return (text, event) => {
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const box = tip.getBoundingClientRect();
    const left = event.clientX + 14 + box.width > innerWidth ? event.clientX - box.width - 10 : event.clientX + 14;
    const top = event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18;
    tip.style.left = `${Math.max(left, 2)}px`;
    tip.style.top = `${Math.max(top, 2)}px`;
  };
}

// The cell of a picture of cells (its attribute data-grid) under the pointer: {row, column, left, top, width, height}; null: none.
function cellAt(picture, event) {
  const [left, top, width, height, columns, rows] = picture.dataset.grid.split(" ").map(Number);
  const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.getScreenCTM().inverse());
  const column = Math.floor(((x - left) / width) * columns), row = Math.floor(((y - top) / height) * rows);
  if (column < 0 || column >= columns || row < 0 || row >= rows) return null;
  const w = width / columns, h = height / rows;
  return { row, column, left: left + column * w, top: top + row * h, width: w, height: h };
}

