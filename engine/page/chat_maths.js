// SPDX-License-Identifier: Apache-2.0
// Formulas of answers: \( \), \[ \], $$ $$, and $ $ where that is clearly one. They are taken out before markdown reads their characters, and
// put into what it makes: MathML by KaTeX, which the page has packed and unpacks for the first formula. What KaTeX refuses, and what has
// not come to its end, is shown as it was written.

const kLongestFormula = 4000, kMostFormulas = 500;
const kPurifyMaths = {
  USE_PROFILES: { mathMl: true },
  ADD_ATTR: ["columnalign"],
  FORBID_ATTR: ["class", "encoding", "href", "id", "style"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

// --- finding them

// Whether what stands between two dollars is a formula rather than a text between two prices: no words but TeX's own.
function clearlyMaths(tex) {
  if (/^\s|\s$/.test(tex)) return false;
  const words = tex.replace(/\\[A-Za-z]+|_?\{[^{}]*\}|_\w+/g, " ");
  return !/[A-Za-z]{3,}/.test(words) && !(/\s/.test(tex) && /(^|\s)[A-Za-z]{2,}(\s|$)/.test(words));
}

// The line's text before `at`, or of a long line its end.
function lineBefore(text, at) {
  const before = text.slice(Math.max(0, at - 200), at);
  return before.slice(before.lastIndexOf("\n") + 1);
}

// Where the code that begins with the fence or the backticks at `at` ends; `at` itself: it is no code.
function codeEnd(text, at, fence) {
  const after = at + fence.length, line = fence.length >= 3 ? lineBefore(text, at) : "";
  if (fence.length >= 3 && line.length < 100 && /^[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*$/.test(line) && !/^[^\n]*`/.test(text.slice(after))) {
    const end = new RegExp(`\\n[ \\t>]*${fence[0]}{${fence.length},}[ \\t]*(?=\\n|$)`, "g");
    end.lastIndex = after;
    return end.exec(text) ? end.lastIndex : text.length;
  }
  if (fence[0] !== "`") return at;
  const end = new RegExp(`(?<!\`)${fence}(?!\`)|\\n[ \\t>]*\\n`, "g");
  end.lastIndex = after;
  return end.exec(text)?.[0] === fence ? end.lastIndex : at;
}

// The formula whose opening `open` stands at `at`: {end, tex, whole}. `whole`: it is closed; else the text ends before it does. null: it is
// none. Only between \[ and \] may lines be empty.
function formulaAt(text, at, open) {
  const close = { "\\(": "\\)", "\\[": "\\]" }[open] ?? open, from = at + open.length, next = /\\[^]|\$\$?|\n[ \t>]*\n/g;
  next.lastIndex = from;
  let paragraphs = 1;
  for (let found; (found = next.exec(text)) && found.index < from + kLongestFormula; ) {
    const [part] = found;
    if (part[0] === "\n" ? open !== "\\[" || ++paragraphs > 9 : part !== close && (open === "$" ? part === "$$" : part === open)) return null;
    if (part !== close) continue;
    const tex = text.slice(from, found.index), end = next.lastIndex;
    if (!tex.trim() || (open === "$" && (tex.includes("\n") || /\w/.test(text[end] ?? "") || !clearlyMaths(tex)))) return null;
    return { end, tex, whole: true };
  }
  const rest = text.slice(from);
  return open === "$" || paragraphs > 1 || rest.length > kLongestFormula || !rest.trim() ? null : { end: text.length, tex: "", whole: false };
}

// {text, mark, formulas}: `text` with each formula as its number between two characters `mark`, which it has nowhere else. Code and addresses
// are left alone; of what is no formula the backslash stays.
function takeFormulas(text) {
  let mark = 0xe000;  // for private use
  while (text.includes(String.fromCharCode(mark))) ++mark;
  mark = String.fromCharCode(mark);
  const formulas = [], next = /\\[^]|\$\$?|`+|~{3,}|https?:\/\/\S*|\]\([^)\s]*/g;
  let out = "", done = 0;
  for (let found; (found = next.exec(text)); ) {
    const [part] = found, at = found.index;
    if (part[0] === "`" || part[0] === "~") {
      next.lastIndex = Math.max(codeEnd(text, at, part), next.lastIndex);
    } else if (["\\(", "\\[", "$", "$$"].includes(part) && !(part === "$" && /[\w$]/.test(text[at - 1] ?? ""))) {
      const formula = formulaAt(text, at, part);
      const written = formula ? `${mark}${formulas.length}${mark}` : part.replace("\\", "\\\\");
      const end = formula?.end ?? next.lastIndex, display = part === "\\[" || part === "$$";
      if (formula) {
        const quoted = /^[ \t]*>/.test(lineBefore(text, at)), tex = quoted ? formula.tex.replace(/\n[ \t]*>/g, "\n") : formula.tex;
        formulas.push({ source: text.slice(at, end), tex, display, whole: formula.whole });
      }
      out += text.slice(done, at) + written;
      next.lastIndex = done = end;
    } else if (part === "\\)" || part === "\\]") {
      out += `${text.slice(done, at)}\\${part}`;
      done = next.lastIndex;
    }
  }
  return { text: out + text.slice(done), mark, formulas };
}

// --- making them

let katexAsked = false;
let onMaths = () => {};  // called once formulas can be made

// The policy has the hash of the unpacked text, so that it may run.
async function unpackKatex() {
  if (katexAsked) return;
  katexAsked = true;
  const packed = byId("packed-katex");
  if (!packed || typeof DecompressionStream !== "function") return;
  const bytes = Uint8Array.from(atob(packed.textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  document.head.append(make("script", { textContent: await new Response(stream).text() }));
  packed.remove();
  onMaths();
}

// Unicode's letters of a variant: where its "A" is ("a" follows "Z"), and those that stood elsewhere before.
const kVariants = {
  "double-struck": [0x1d538, { C: "\u2102", H: "\u210d", N: "\u2115", P: "\u2119", Q: "\u211a", R: "\u211d", Z: "\u2124" }],
  fraktur: [0x1d504, { C: "\u212d", H: "\u210c", I: "\u2111", R: "\u211c", Z: "\u2128" }],
  script: [0x1d49c, { B: "\u212c", E: "\u2130", F: "\u2131", H: "\u210b", I: "\u2110", L: "\u2112", M: "\u2133", R: "\u211b", e: "\u212f", g: "\u210a", o: "\u2134" }],
};

// Browsers know no variant but "normal": others become letters of their own, or classes.
function spellVariants(math) {
  for (const element of math.querySelectorAll("[mathvariant]")) {
    const variant = element.getAttribute("mathvariant"), [first, others] = kVariants[variant] ?? [];
    if (first) {
      const letter = (c) => others[c] ?? String.fromCodePoint(first + (c < "a" ? c.charCodeAt(0) - 65 : c.charCodeAt(0) - 71));
      element.textContent = element.textContent.replace(/[A-Za-z]/g, letter);
    }
    for (const name of ["bold", "sans-serif", "monospace"]) if (variant.includes(name)) element.classList.add(name);
    if (variant.includes("italic")) element.removeAttribute("mathvariant");
    else element.setAttribute("mathvariant", "normal");
  }
}

function makeMath(tex, display) {
  try {
    const html = window.katex.renderToString(tex, { output: "mathml", displayMode: display, throwOnError: true, strict: "ignore", trust: false, maxSize: 20, maxExpand: 500 });
    const math = window.DOMPurify.sanitize(html.replace(/<annotation[^]*?<\/annotation>/g, ""), kPurifyMaths).querySelector("math");
    if (math) spellVariants(math);
    return math;
  } catch {
    return null;
  }
}

const maths = new Map();  // what was made: while an answer comes it is shown again and again

function mathOf(tex, display) {
  if (tex.length > kLongestFormula) return null;
  if (!window.katex) {
    unpackKatex().catch(console.warn);
    return null;
  }
  const key = `${display} ${tex}`;
  if (!maths.has(key)) {
    if (maths.size >= kMostFormulas) maths.clear();
    maths.set(key, makeMath(tex, display));
  }
  return maths.get(key)?.cloneNode(true) ?? null;
}

function formulaNode({ source, tex, display, whole }) {
  const math = whole ? mathOf(tex, display) : null;
  if (!math) return source.startsWith("$") && !display ? document.createTextNode(source) : make("code", { className: "formula", textContent: source });
  const scrolls = display || tex.length > 60, box = make("span", { className: `maths${display ? " display" : scrolls ? " long" : ""}` }, math);
  if (scrolls) box.tabIndex = 0;
  return box;
}

// Puts the formulas of takeFormulas where their marks are; in code and attributes as they were written.
function putFormulas(fragment, { mark, formulas }) {
  if (formulas.length === 0) return;
  const written = (text) => text.replaceAll(encodeURIComponent(mark), mark).replace(new RegExp(`${mark}(\\d+)${mark}`, "g"), (_, i) => formulas[i]?.source ?? "");
  const walker = document.createTreeWalker(fragment, NodeFilter.SHOW_TEXT), texts = [];
  while (walker.nextNode()) if (walker.currentNode.data.includes(mark)) texts.push(walker.currentNode);
  for (const text of texts) {
    if (text.parentElement?.closest("code, pre")) {
      text.data = written(text.data);
      continue;
    }
    const nodes = text.data.split(new RegExp(`${mark}(\\d+)${mark}`)).map((part, i) => (i % 2 ? formulaNode(formulas[part]) : part));
    text.replaceWith(...nodes.filter((node) => node !== ""));
  }
  // A formula of its own line brings its own breaks.
  for (const box of fragment.querySelectorAll(".maths.display")) for (const next of [box.previousSibling, box.nextSibling]) if (next?.nodeName === "BR") next.remove();
  for (const element of fragment.querySelectorAll("a, th, td, li, ol")) {
    for (const { name, value } of [...element.attributes]) if (value.includes(mark) || value.includes(encodeURIComponent(mark))) element.setAttribute(name, written(value));
  }
}

