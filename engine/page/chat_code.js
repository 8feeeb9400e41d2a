// SPDX-License-Identifier: Apache-2.0
// Colours of code: comments, strings, numbers and words of common languages, by one pattern for each. It is made again as an answer comes,
// and what is not closed yet ends with the text. What looks back, and what may have to be given back, is bounded, so that the time is
// linear in the text.

const kLongestCode = 100000;  // characters; longer code has no colours
const kCodeParts = {
  slashes: ["comment", /\/\/[^\n]*|\/\*[^]*?(?:\*\/|(?![^]))/],
  hash: ["comment", /(?<![^\s;(])#[^\n]*/],
  dashes: ["comment", /--[^\n]*|\/\*[^]*?(?:\*\/|(?![^]))/],
  angles: ["comment", /<!--[^]*?(?:-->|(?![^]))/],
  triple: ["string", /"""[^]*?(?:"""|(?![^]))|'''[^]*?(?:'''|(?![^]))/],
  strings: ["string", /"(?:[^"\\\n]|\\[^])*"?|'(?:[^'\\\n]|\\[^])*'?/],
  double: ["string", /"(?:[^"\\]|\\[^])*"?|'(?:[^'\\\n]|\\[^\n]{1,9})'/],
  shell: ["string", /"(?:[^"\\]|\\[^])*"?|'[^']*'?/],
  backticks: ["string", /`(?:[^`\\]|\\[^])*`?/],
  values: ["string", /(?<==\s{0,20})(?:"[^"]*"?|'[^']*'?)/],
  names: ["word", /"(?:[^"\\\n]|\\[^])*"(?=\s*:)/],
  keys: ["word", /(?<=^[ \t-]{0,60})[\w.-]{1,60}(?=\s*[:=])|(?<=^[ \t]{0,60})\[[^\]\n]*\](?=\s*$)/],
  properties: ["word", /[\w-]{1,60}(?=\s*:[^:])|@[\w-]+/],
  tags: ["word", /<[/!?]?[A-Za-z][\w:.-]*|\/?>/],
  pragmas: ["word", /(?<=^[ \t]{0,60})#[ \t]*\w+/],
  marks: ["word", /@[\w.]+/],
  variables: ["number", /\$(?:\w+|[@#?*$!-]|\{[^}\n]*\}?)/],
  colours: ["number", /#[\da-fA-F]{3,8}\b/],
  numbers: ["number", /(?<![\w$])(?:0[xXbBoO][\da-fA-F_']+|\d[\d_']*(?:\.\d+)?(?:[eE][+-]?\d+)?)[\w%]*/],
  added: ["word", /^\+[^\n]*/],
  removed: ["string", /^-[^\n]*/],
  hunks: ["comment", /^(?:@@|diff |index )[^\n]*/],
};
const kCodeWords = {
  c: "auto bool break case char const continue default do double else enum extern false float for goto if inline int long nullptr return short signed sizeof static struct switch true typedef union unsigned void volatile while",
  cpp: "alignas alignof catch class co_await co_return co_yield concept consteval constexpr decltype delete explicit final friend mutable namespace new noexcept operator override private protected public requires static_assert template this throw try typename using virtual",
  java: "abstract assert boolean byte case catch class default do double else enum extends false final finally float for if implements import instanceof int interface long new null package private protected public record return short static super switch synchronized this throw throws true try var void while",
  csharp: "async await base decimal delegate event foreach get in internal is lock namespace object out override params readonly ref sealed set string struct using virtual where yield",
  js: "async await break case catch class const continue debugger default delete do else export extends false finally for from function get if import in instanceof let new null of return set static super switch this throw true try typeof undefined var void while yield",
  ts: "abstract any as boolean declare enum implements interface keyof namespace never number private protected public readonly string type unknown",
  go: "any bool break byte case chan const continue default defer else error fallthrough false float32 float64 for func go goto if import int int32 int64 interface map nil package range return rune select string struct switch true type uint uint32 uint64 var",
  rust: "as async await bool break const continue crate dyn else enum extern f32 f64 false fn for i32 i64 if impl in let loop match mod move mut pub ref return self Self static str struct super trait true type u8 u32 u64 unsafe use usize where while",
  kotlin: "as break class companion continue data do else false for fun guard if import in init interface internal is let nil null object open override private protected public return sealed self struct super this throw true try typealias val var when while func enum extension protocol switch case default static",
  python: "and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield",
  bash: "case do done elif else esac exit export fi for function if in local return set then until while cd echo source sudo",
  sql: "add all alter and as asc begin between by case check column commit constraint create cross default delete desc distinct drop else end exists foreign from full group having if in index inner insert int integer into is join key left like limit not null offset on or order outer over partition primary references right rollback select set table text then union unique update using values varchar view when where with",
  data: "true false null yes no on off",
};
const kLanguages = [
  ["c", "c h", "slashes strings pragmas numbers", "c"],
  ["cpp", "cpp c++ cc cxx hpp cuda cu", "slashes strings pragmas numbers", "c cpp"],
  ["java", "java", "slashes strings marks numbers", "java"],
  ["csharp", "csharp cs c#", "slashes strings pragmas numbers", "java csharp"],
  ["js", "javascript js jsx mjs", "slashes strings backticks numbers", "js"],
  ["ts", "typescript ts tsx", "slashes strings backticks marks numbers", "js ts"],
  ["go", "go golang", "slashes strings backticks numbers", "go"],
  ["rust", "rust rs", "slashes double numbers", "rust"],
  ["kotlin", "kotlin kt swift", "slashes strings marks numbers", "kotlin"],
  ["python", "python py python3", "hash triple strings marks numbers", "python"],
  ["bash", "bash sh shell zsh console", "hash shell variables numbers", "bash"],
  ["sql", "sql mysql postgresql sqlite", "dashes strings numbers", "sql"],
  ["json", "json json5 jsonc", "slashes names strings numbers", "data"],
  ["yaml", "yaml yml toml ini", "hash triple keys strings numbers", "data"],
  ["html", "html xml svg vue", "angles tags values", ""],
  ["css", "css scss", "slashes strings colours properties numbers", ""],
  ["diff", "diff patch", "added removed hunks", ""],
];

const codePatterns = new Map();  // of languages by each of their names: {pattern, kinds, words, any}; made when first wanted

function patternOf(language) {
  if (codePatterns.has(language)) return codePatterns.get(language);
  const row = kLanguages.find(([, names]) => names.split(" ").includes(language));
  let made = null;
  if (row) {
    const [name, , parts, words] = row, all = parts.split(" ").map((part) => kCodeParts[part]);
    made = {
      pattern: new RegExp([...all.map(([, { source }]) => `(${source})`), "([A-Za-z_$][\\w$]*)"].join("|"), "gm"),
      kinds: all.map(([kind]) => kind),
      words: new Set(words.split(" ").flatMap((list) => (kCodeWords[list] ?? "").split(" "))),
      anyCase: name === "sql",
    };
  }
  codePatterns.set(language, made);
  return made;
}

// Colours what the element `code` says, if `language` is known.
function colourCode(code, language) {
  const found = patternOf(language.toLowerCase()), text = code.textContent;
  if (!found || text.length > kLongestCode) return;
  const nodes = [], { pattern, kinds, words, anyCase } = found;
  let done = 0;
  for (const match of text.matchAll(pattern)) {
    const [part] = match, group = match.slice(1).findIndex((one) => one !== undefined);
    const kind = kinds[group] ?? (words.has(anyCase ? part.toLowerCase() : part) ? "word" : "");
    if (!kind || !part) continue;
    nodes.push(text.slice(done, match.index), make("span", { className: `code-${kind}`, textContent: part }));
    done = match.index + part.length;
  }
  code.replaceChildren(...nodes, text.slice(done));
}

