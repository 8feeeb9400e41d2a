// SPDX-License-Identifier: Apache-2.0
// Messages as elements.

const kIcons = {
  copy: "M7 7h9v9H7zM4 13V4h9",
  edit: "M4 16l1-4 8-8 3 3-8 8zM11.5 5.5l3 3",
  again: "M16 10a6 6 0 1 1-2-4.5M16 3v4h-4",
  back: "M12 5l-5 5 5 5",
  next: "M8 5l5 5-5 5",
  remove: "M4 6h12M8 6V4h4v2M6 6l1 10h6l1-10",
  save: "M10 4v9M6 9.5l4 4 4-4M4 16h12",
};

function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", kIcons[name]);
  svg.append(path);
  return svg;
}

function iconButton(name, label, onclick) {
  const button = make("button", { type: "button", className: "icon small", title: label, onclick }, icon(name));
  button.setAttribute("aria-label", label);
  return button;
}

// "‹ 2 of 3 ›" where a message has been made more than once.
function versions(message, actions) {
  const all = siblings(actions.conversation, message), at = all.indexOf(message);
  if (all.length < 2 || message.role === "tool") return [];
  const step = (name, label, to) => {
    const button = iconButton(name, label, () => actions.show(all[to]));
    button.disabled = !all[to] || actions.busy();
    return button;
  };
  return [step("back", "Version before", at - 1), make("span", { className: "muted", textContent: `${at + 1} of ${all.length}` }), step("next", "Version after", at + 1)];
}

function copyIcon(text) {
  const button = iconButton("copy", "Copy", async () => {
    button.classList.toggle("done", await copyText(text()));
    setTimeout(() => button.classList.remove("done"), 1500);
  });
  return button;
}

function userView(message, actions) {
  const bubble = make("div", { className: "bubble", dir: "auto", textContent: message.content });
  const row = make("div", { className: "actions" }, ...versions(message, actions), copyIcon(() => message.content));
  const edit = iconButton("edit", "Edit and ask again", () => editView(item, message, actions));
  edit.disabled = actions.busy();
  row.append(edit);
  const item = make("li", { className: "message user" }, make("h2", { className: "hidden", textContent: "You" }), bubble, row);
  return { item, update() {} };
}

function editView(item, message, actions) {
  const field = make("textarea", { className: "edit", value: message.content, rows: Math.min(12, message.content.split("\n").length + 1) });
  field.setAttribute("aria-label", "Edit the message");
  const send = () => field.value.trim() && actions.edit(message, field.value);
  const cancel = () => actions.redraw();
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") event.stopPropagation(), cancel();
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) event.preventDefault(), send();
  });
  const buttons = make("div", { className: "buttons" }, make("button", { type: "button", textContent: "Cancel", onclick: cancel }),
    make("button", { type: "button", className: "primary", textContent: "Ask again", onclick: send }));
  item.replaceChildren(field, buttons);
  field.focus();
}

function toolView(message) {
  const item = make("li", { className: "message tool" }, make("h2", { textContent: `Result of ${message.name || "the tool"}` }),
    make("pre", { textContent: message.content, tabIndex: 0 }));
  return { item, update() {} };
}

// The calls of an answer, and fields for what they give.
function callsView(message, actions) {
  const views = message.calls.filter(Boolean).map((call) => {
    const pretty = parsed(call.arguments, null);
    const text = pretty === null ? call.arguments : JSON.stringify(pretty, null, 2);
    return make("div", { className: "call" }, make("p", {}, "Calls ", make("code", { textContent: call.name })), make("pre", { textContent: text, tabIndex: 0 }));
  });
  if (message.finish !== "tool_calls" || actions.busy() || actions.answered(message)) return views;
  const fields = message.calls.map((call) => make("textarea", { rows: 2, ariaLabel: `Result of ${call.name}`, placeholder: `Result of ${call.name}` }));
  const send = () => actions.results(message, fields.map((field) => field.value));
  return [...views, make("div", { className: "results" }, ...fields, make("button", { type: "button", textContent: "Send results", onclick: send }))];
}

function costLine(message) {
  const cost = costOf(message);
  if (!cost) return "";
  const forced = cost.forced > 0 ? `, ${count(cost.forced)} forced by the ${message.held === "json" ? "grammar" : "schema"}` : "";
  const parts = [`${count(cost.written)} tokens${forced}`];
  if (cost.seconds > 0 && cost.decoded > 0) parts.push(`${rate(cost.decoded / cost.seconds)} a second`);
  if (cost.flops > 0) parts.push(si(cost.flops, "FLOP"), si(cost.bytes, "B"));
  if (cost.disk > 0) parts.push(`${si(cost.disk, "B")} from disk`);
  if (cost.cached > 0) parts.push(`${count(cost.cached)} of ${count(cost.read)} cached`);
  if (message.unbilled) parts.push("without what came before an interruption");
  if (message.model) parts.push(message.model);
  return parts.join(" \u00b7 ");
}

// The bill by phase.
function billTable(bill) {
  const row = (name, value) => make("tr", {}, make("th", { scope: "row", textContent: name }), ...["prefill", "decode"].map((phase) => make("td", { className: "n", textContent: value(bill[phase] ?? {}) })));
  const classes = [...new Set(["prefill", "decode"].flatMap((phase) => Object.keys(bill[phase]?.flops_by_class ?? {})))];
  const head = make("tr", {}, ...["", "prefill", "decode"].map((name, i) => make(i ? "th" : "td", { className: i ? "n" : "", textContent: name })));
  const rows = [row("rows", (w) => count(w.rows ?? 0)), row("FLOPs", (w) => count(w.flops ?? 0)), ...classes.map((c) => row(`  ${c}`, (w) => count(w.flops_by_class?.[c] ?? 0)))];
  for (const kind of diskBytes(bill.prefill) + diskBytes(bill.decode) > 0 ? [...kMoved, kDisk] : kMoved) rows.push(row(`bytes, ${kind}`, (w) => count(w.bytes?.[kind] ?? 0)));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
}

function footView(message, actions) {
  const bill = message.usage?.tally, line = costLine(message);
  const row = make("div", { className: "actions" }, ...versions(message, actions), copyIcon(() => message.content));
  const again = iconButton("again", "Answer again", () => actions.again(message));
  again.disabled = actions.busy();
  row.append(again);
  if (!line) return [row];
  if (!bill) return [row, make("p", { className: "cost muted", textContent: line })];
  const box = make("div", { className: "table", tabIndex: 0, role: "group", ariaLabel: "Bill" });
  const details = make("details", { className: "cost" }, make("summary", { textContent: `Bill: ${line}` }), box);
  details.addEventListener("toggle", () => box.childElementCount === 0 && box.append(billTable(bill)));
  return [row, details];
}

// The browser or the connection ended it, not the server.
const wasInterrupted = (message) => !message.finish && !message.stopped && !message.error;

function noteOf(message, running, stopping) {
  if (running) return stopping ? "Stopping \u2026" : "";
  if (message.error) return message.error;
  const cut = message.held && message.content && !readJson(message.content)?.whole ? " Its JSON is incomplete." : "";
  if (message.stopped) return `Stopped.${cut}`;
  if (message.finish === "length") return `The limit of tokens ended this answer.${cut}`;
  return wasInterrupted(message) ? `This answer was interrupted.${cut}` : "";
}

// What is offered for an answer that was not finished: {text, call}; null: nothing. JSON that is held begins at its beginning, and so does
// an answer that had not begun.
function moreOf(message, actions) {
  const early = wasInterrupted(message) || message.stopped || message.error || message.finish === "length";
  if (!early || message.calls || actions.answered(message)) return null;
  if (message.content && !message.held) return { text: "Go on", call: () => actions.goOn(message) };
  return wasInterrupted(message) ? { text: "Answer again", call: () => actions.again(message) } : null;
}

const openThoughts = new WeakSet();  // messages whose thinking the reader has unfolded

function assistantView(message, actions) {
  const summary = make("summary"), thought = make("div", { className: "thought" }), think = make("details", { className: "think" }, summary, thought);
  const answer = make("div", { className: "answer", dir: "auto" }), calls = make("div"), note = make("p", { className: "note" }), more = make("button", { type: "button", className: "more" }), foot = make("div", { className: "foot" });
  const wait = make("p", { className: "wait", textContent: "Working" });
  const item = make("li", { className: "message assistant" }, make("h2", { className: "hidden", textContent: "Tally" }), think, answer, calls, wait, note, more, foot);
  const tree = message.held ? treeView(message) : null;
  if (tree) answer.append(tree.box);
  think.open = openThoughts.has(message);
  think.addEventListener("toggle", () => {
    openThoughts[think.open ? "add" : "delete"](message);
    if (think.open) patch(thought, rendered(message.reasoning ?? ""));
  });
  const update = () => {
    const running = actions.running(message), some = message.content || message.calls;
    think.hidden = !message.reasoning;
    summary.textContent = running && !some ? "Thinking \u2026" : "Thought";
    if (think.open) patch(thought, rendered(message.reasoning ?? ""));
    if (tree) tree.update();
    else patch(answer, rendered(message.content));
    calls.replaceChildren(...(message.calls ? callsView(message, actions) : []));
    wait.hidden = !running || Boolean(some || message.reasoning);
    note.textContent = noteOf(message, running, actions.stopping(message));
    note.classList.toggle("error", Boolean(message.error));
    note.hidden = !note.textContent;
    const offered = running ? null : moreOf(message, actions);
    more.hidden = !offered;
    more.disabled = actions.busy();
    more.textContent = offered?.text ?? "";
    more.onclick = offered?.call ?? null;
    foot.replaceChildren(...(running ? [] : footView(message, actions)));
    item.setAttribute("aria-busy", String(running));
  };
  update();
  return { item, update };
}

function messageView(message, actions) {
  if (message.role === "user") return userView(message, actions);
  return message.role === "tool" ? toolView(message) : assistantView(message, actions);
}

