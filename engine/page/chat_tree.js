// SPDX-License-Identifier: Apache-2.0
// Answers that are JSON, as trees. They are read here, not by JSON.parse: as far as they have come, and as they are spelled. That would round
// numbers, put names that are numbers first, and drop what is named twice.

const kDeepest = 100;  // levels of a tree; what is deeper stays text

// What has come of the JSON in `text`: {kind, text, items, whole}. `items` of an object or a list: {name, value}; `whole`: nothing may follow
// within. null: it is no JSON, or too deep.
function readJson(text) {
  let at = 0;
  const take = (pattern) => {
    pattern.lastIndex = at;
    const [found] = pattern.exec(text) ?? [""];
    at += found.length;
    return found;
  };
  const kNone = new Error();
  const next = () => (take(/[ \t\n\r]*/y), text[at]);  // undefined: no more has come
  const string = () => {
    const inner = take(/"(?:[^"\\\u0000-\u001f]+|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*/y);
    const whole = take(/"/y) !== "";
    if (!whole) take(/\\(?:u[0-9a-fA-F]{0,3})?/y);  // of an escape
    if (!whole && at < text.length) throw kNone;
    return { text: JSON.parse(`${inner}"`), whole };
  };
  const value = (depth) => {
    const first = next();
    if (first === "{" || first === "[") {
      if (depth === kDeepest) throw kNone;
      return items(first === "{" ? "object" : "list", depth);
    }
    if (first === '"') {
      const { text: said, whole } = string();
      return { kind: "string", text: `"${said}${whole ? '"' : ""}`, whole };
    }
    const word = take(/[-+.\w]+/y), more = at < text.length;
    const known = word && ["true", "false", "null"].find((one) => one.startsWith(word));
    const whole = known ? known === word : /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(word);
    if (!whole && (more || !(known || /^-?(?:\d+(?:\.\d*)?(?:[eE][+-]?)?)?$/.test(word)))) throw kNone;
    return { kind: known ? "word" : "number", text: word, whole };
  };
  const items = (kind, depth) => {
    const close = kind === "object" ? "}" : "]", found = { kind, items: [], whole: false };
    ++at;
    if (next() === close) return ++at, { kind: "empty", text: kind === "object" ? "{}" : "[]", whole: true };
    while (next() !== undefined) {
      const item = {};
      if (kind === "object") {
        if (text[at] !== '"') throw kNone;
        item.name = string().text;
        if (next() === undefined) break;
        if (text[at++] !== ":") throw kNone;
        if (next() === undefined) break;
      }
      item.value = value(depth + 1);
      found.items.push(item);
      const after = next();
      if (after === undefined) break;
      ++at;
      if (after === close) return { ...found, whole: true };
      if (after !== ",") throw kNone;
    }
    return found;
  };
  try {
    if (next() === undefined) return null;
    const root = value(0);
    return next() === undefined ? root : null;
  } catch (error) {
    if (error !== kNone) console.warn(error);
    return null;
  }
}

function sizeOf({ kind, items, whole }) {
  const unit = kind === "object" ? "member" : "item";
  return `${count(items.length)} ${unit}${items.length === 1 ? "" : "s"}${whole ? "" : " so far"}`;
}

// A value and its name as an item of a list. `update` is given the value again as more of it has come; what is there stays, folded or not.
function nodeView(name) {
  const item = make("li"), label = name === undefined ? [] : [make("bdi", { className: "name", textContent: name }), ": "];
  let kind = "", leaf, size, list, views;
  const begin = (value) => {
    kind = value.kind;
    views = [];
    if (value.items) {
      size = make("span", { className: "muted" });
      list = make(kind === "list" ? "ol" : "ul", kind === "list" ? { start: 0 } : {});
      item.replaceChildren(make("details", { open: true }, make("summary", {}, ...label, size), list));
    } else {
      leaf = make("bdi", { className: kind });
      item.replaceChildren(...label, leaf);
    }
  };
  const update = (value) => {
    if (value.kind !== kind) begin(value);
    const put = (element, text) => element.textContent !== text && (element.textContent = text);
    if (!value.items) return put(leaf, value.text);
    put(size, sizeOf(value));
    for (let i = Math.max(0, views.length - 1); i < value.items.length; ++i) {  // those before were whole
      if (i === views.length) list.append(views[views.push(nodeView(value.items[i].name)) - 1].item);
      views[i].update(value.items[i].value);
    }
  };
  return { item, update };
}

const trees = new WeakMap();  // of messages: what is folded stays so where the conversation is drawn anew

// The answer of `message`, a tree or its text as the reader wants it.
function treeView(message) {
  if (trees.has(message)) return trees.get(message);
  const root = nodeView(), tree = make("ul", { className: "tree" }, root.item), plain = make("pre", { className: "plain", tabIndex: 0 });
  const button = (textContent, onclick) => make("button", { type: "button", className: "copy", textContent, onclick });
  const parts = () => tree.querySelectorAll("details details"), anyOpen = () => tree.querySelector("details details[open]") !== null;
  const fold = button("", () => {
    const open = anyOpen();
    for (const part of parts()) part.open = !open;
  });
  tree.addEventListener("toggle", () => (fold.textContent = anyOpen() ? "Fold" : "Unfold"), true);
  const swap = button("Text", () => {
    asText = !asText;
    update();
  });
  const called = make("span"), head = make("div", { className: "code-head" }, called, make("span", {}, fold, swap));
  const box = make("div", { className: "code", dir: "ltr" }, head, tree, plain);
  let asText = false;
  const update = () => {
    const value = readJson(message.content);
    if (value) root.update(value);
    tree.hidden = !value || asText;
    plain.hidden = !tree.hidden;
    if (!plain.hidden) plain.textContent = message.content;
    called.textContent = value ? "JSON" : "Text";
    swap.hidden = !value;
    swap.textContent = asText ? "Tree" : "Text";
    fold.hidden = tree.hidden || parts().length === 0;
    fold.textContent = anyOpen() ? "Fold" : "Unfold";
    box.hidden = message.content === "";
  };
  const view = { box, update };
  trees.set(message, view);
  return view;
}

// What is said aloud of the answer `text`.
function spokenJson(text) {
  const value = readJson(text);
  return value?.items ? `JSON, ${sizeOf(value)}.` : text;
}
