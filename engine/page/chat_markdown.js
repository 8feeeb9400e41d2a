// SPDX-License-Identifier: Apache-2.0
// Answers as HTML: marked makes it, DOMPurify takes away whatever is not text, formulas are put in, and code gets its colours and a button.
// Where the build had neither library, answers are plain text.

const hasMarkdown = typeof window.marked?.parse === "function" && typeof window.DOMPurify?.sanitize === "function";
const kPurify = {
  USE_PROFILES: { html: true },
  FORBID_TAGS: ["style", "form", "input", "button", "textarea", "select", "option", "img", "video", "audio", "picture", "source", "dialog", "map", "area"],
  FORBID_ATTR: ["src", "srcset", "background", "poster", "style", "id", "name", "for", "tabindex", "contenteditable", "popover", "accesskey"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

// Arguments are strings in some versions of marked and a token in others.
if (hasMarkdown) {
  const simpleTag = /<\/?(b|i|u|s|em|strong|mark|sub|sup|kbd|code|br|hr|p|details|summary)\s*\/?>/gi;
  window.marked.use({
    renderer: {
      // Simple tags stay; other HTML of an answer is shown as it was written.
      html(html) {
        const source = String(html?.text ?? html);
        return source.replace(simpleTag, "").includes("<") ? make("span", { textContent: source }).innerHTML : source;
      },
      checkbox: (checked) => ((checked?.checked ?? checked) ? "\u2611 " : "\u2610 "),
      // Nothing is fetched from elsewhere: an image is a link to it.
      image(href, title, text) {
        const target = String(href?.href ?? href), label = String(href?.text ?? text ?? "") || target;
        return make("a", { href: target, textContent: label }).outerHTML;
      },
    },
  });
  // DOMPurify of Debian 12 (2.4.1+deb12u1) reads a variable of another of its functions before it begins, and throws where there is none.
  window.shadowNode ??= { __depth: 0 };
  // Of classes only the language of a block of code is kept.
  window.DOMPurify.addHook("uponSanitizeAttribute", (node, data) => {
    if (data.attrName === "class") data.keepAttr = /^language-[\w+#.-]{1,20}$/.test(data.attrValue);
  });
}

function copyButton(text) {
  const button = make("button", { type: "button", className: "copy", textContent: "Copy" });
  button.addEventListener("click", async () => {
    const done = await copyText(text());
    button.textContent = done ? "Copied" : "Not copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}

// Browsers give the clipboard to pages from this machine or over TLS; elsewhere the older way.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = make("textarea", { value: text, className: "hidden" });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

function codeBox(pre) {
  const code = pre.textContent, language = pre.querySelector("code")?.className.replace("language-", "") ?? "";
  const head = make("div", { className: "code-head" }, make("span", { textContent: language }), copyButton(() => code.replace(/\n$/, "")));
  if (language) colourCode(pre.querySelector("code"), language);
  pre.tabIndex = 0;  // it scrolls sideways
  const box = make("div", { className: "code" }, head);
  pre.replaceWith(box);
  box.append(pre);
}

// The nodes of safe HTML; null: it cannot be made. A block of code that has no end yet is one for marked if its last line ends.
function safeHtml(text) {
  if (!hasMarkdown) return null;
  try {
    return window.DOMPurify.sanitize(window.marked.parse(`${text}\n`, { gfm: true, breaks: true, headerIds: false, mangle: false }), kPurify);
  } catch (error) {
    console.warn(error);
    return null;
  }
}

// `text` as nodes. While an answer comes it is made again and again; `patch` keeps what has not changed.
function rendered(text) {
  const found = takeFormulas(text), fragment = safeHtml(found.text) ?? document.createDocumentFragment();
  putFormulas(fragment, found);
  if (text && !fragment.hasChildNodes()) fragment.append(make("div", { className: "plain", textContent: text }));
  for (const link of fragment.querySelectorAll("a")) Object.assign(link, { target: "_blank", rel: "noopener noreferrer" });
  for (const table of fragment.querySelectorAll("table")) {
    const box = make("div", { className: "table", tabIndex: 0 });
    box.setAttribute("role", "group");  // a region is a landmark, of which there may be one of a name
    box.setAttribute("aria-label", "Table");
    table.replaceWith(box);
    box.append(table);
  }
  // The page's own headings are of the first two levels.
  for (const heading of fragment.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    heading.replaceWith(make(`h${Math.min(Number(heading.tagName[1]) + 2, 6)}`, {}, ...heading.childNodes));
  }
  for (const pre of fragment.querySelectorAll("pre")) codeBox(pre);
  return fragment;
}

// Makes the children of `box` those of `fragment`. Equal ones at the beginning stay, with what the reader has selected or focused there.
function patch(box, fragment) {
  const fresh = [...fragment.childNodes];
  let same = 0;
  while (same < fresh.length && box.childNodes[same]?.isEqualNode(fresh[same])) ++same;
  while (box.childNodes.length > same) box.lastChild.remove();
  box.append(...fresh.slice(same));
}

