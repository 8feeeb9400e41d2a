// SPDX-License-Identifier: Apache-2.0
// usage: node chat.mjs CHROMIUM SCREENSHOTS URL [--scripted [--maths]]
// Talks to the chat page of a server in headless Chromium, in a desktop's and a phone's window, light and dark. With --scripted the server
// is mock_server.mjs, whose answers are known; with --maths the page has KaTeX. Prints a line for each finding and leaves screenshots in the
// folder SCREENSHOTS. Exit code 1: there are findings.
import { writeFileSync } from "node:fs";
import { codeColours, formulas, goingOn, prefixes, sampling, severalModels, slowStop, wideTables } from "./chat_answers.mjs";
import { accessible, answers, at, browser, expect, findings, fits, idle, kAnswerMilliseconds, open, pause, report, scripted, screenshots, shot, say, text, texts, url } from "./chat_window.mjs";

// What holds of any server.
async function conversation(page) {
  await say(page, "Say one sentence.");
  expect((await answers(page)).at(-1)?.trim() !== "", `no answer: ${await text(page, "#messages")}`);
  expect((await texts(page, "#cost dt")).includes("arithmetic"), "the answer's cost is not shown");

  // It comes piece by piece, and stops.
  await page.evaluate(() => {
    window.lengths = new Set();
    new MutationObserver(() => window.lengths.add(document.querySelector(".assistant:last-child .answer")?.textContent.length)).observe(
      document.getElementById("messages"), { subtree: true, childList: true, characterData: true });
  });
  await page.type("#input", "Tell a very long story.");
  await page.keyboard.press("Enter");
  const ended = () => document.getElementById("stop").hidden && document.querySelectorAll(".assistant .foot > *").length > 1;
  await page.waitForFunction(`window.lengths.size > 2 || (!${Boolean(scripted)} && (${ended})())`, { timeout: kAnswerMilliseconds });
  await page.keyboard.press("Escape");
  await idle(page);
  const stopped = (await answers(page)).at(-1);
  await pause(300);
  expect(stopped === (await answers(page)).at(-1), "the answer goes on after it was stopped");
  const note = await text(page, ".assistant:last-child .note");  // a small model may have been quicker than the key
  expect(note === "Stopped." || !scripted, `a stopped answer says '${note}'`);
  expect(await page.$(".assistant:last-child .cost"), "an answer that was stopped has no bill");
  expect((await text(page, "#spoken")).length > 0, "nothing is said aloud");

  // A reload keeps all of it.
  const kept = await texts(page, ".bubble, .assistant .answer");
  await page.reload({ waitUntil: "load" });
  expect(JSON.stringify(kept) === JSON.stringify(await texts(page, ".bubble, .assistant .answer")), "a reload changes the conversation");

  // An edited message is asked again; the first one is still there.
  await page.hover(".user:nth-of-type(3)");
  await (await page.$$(".user [aria-label='Edit and ask again']")).at(-1).click();
  await page.$eval(".edit", (field) => (field.value = ""));
  await page.type(".edit", "Say one word.");
  await page.keyboard.press("Enter");
  await idle(page);
  expect((await texts(page, ".bubble")).at(-1) === "Say one word.", "an edited message is not shown");
  expect((await texts(page, ".bubble")).length === 2, "what followed the edited message is still shown");
  expect((await text(page, ".user:nth-of-type(3) .actions .muted")) === "2 of 2", "there is no second version");
  await page.click(".user:nth-of-type(3) [aria-label='Version before']");
  expect((await texts(page, ".bubble")).at(-1) === "Tell a very long story.", "the first version is gone");
  expect((await answers(page)).at(-1) === stopped, "the first version's answer is gone");

  await page.click(".assistant:last-child [aria-label='Answer again']");
  await pause(200);
  await page.keyboard.press("Escape");
  await idle(page);
  expect((await text(page, ".assistant:last-child .actions .muted")) === "2 of 2", "an answer made again is not a second version");

  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("/");
  expect(await page.evaluate(() => document.activeElement.id === "input"), "/ does not focus the message field");
}

async function markdown(page) {
  await page.click("#new");
  await say(page, "think about it");
  expect((await text(page, ".think > summary")) === "Thought", "thinking has no fold");
  expect(!(await page.$eval(".think", (think) => think.open)), "thinking is not folded");
  await page.click(".think > summary");
  await page.waitForSelector(".thought strong");
  await page.click(".think > summary");

  await say(page, "markdown please");
  for (const selector of ["ol > li", "strong", "em", "table th", "blockquote", ".code pre code", "a[rel='noopener noreferrer']"]) {
    expect(await page.$(`.answer ${selector}`), `the answer has no ${selector}`);
  }
  expect((await text(page, ".code-head span")) === "python", "the code's language is not shown");
  await page.click(".copy");
  await page.waitForFunction(() => document.querySelector(".copy").textContent !== "Copy");
  await page.click(".assistant:last-child .cost > summary");
  await page.waitForSelector(".cost tbody th");

  // The conversation's cost is the sum of its bills (mock_server.mjs: 7 GFLOP a row, prompts of 40).
  const tokens = (await texts(page, ".cost > summary")).map((line) => Number(/([\d,]+) tokens/.exec(line)[1].replaceAll(",", "")));
  const written = tokens.reduce((a, b) => a + b, 0), shown = await texts(page, "#cost dd");
  const work = `${((7e9 * (40 * tokens.length + written)) / 1e12).toFixed(2)} TFLOP`;
  expect(tokens.length === 2 && shown.includes(`${written} tokens`) && shown.includes(work), `bills of ${tokens} tokens add up to ${shown}`);
}

async function hostile(page) {
  await page.click("#new");
  await say(page, "hostile");
  await pause(300);
  const bad = await page.evaluate(() => {
    const found = [];
    for (const element of document.querySelectorAll(".answer *")) {
      if (/^(script|style|iframe|img|form|input|base|svg|math|object|embed|link|meta)$/i.test(element.tagName) && !element.matches(".maths > math")) found.push(element.outerHTML);
      for (const { name, value } of element.attributes) {
        if (/^on|^style$|^id$|^name$/.test(name) || /^\s*(javascript|data):/i.test(value)) found.push(`${name}=${value}`);
      }
    }
    return found;
  });
  for (const what of bad) report(`an answer brings ${what}`);
  expect(await page.$eval("body", (body) => body.checkVisibility()), "an answer hides the page");
  expect((await text(page, ".answer")).includes("<b>i</b>"), "code is not shown as it is");
}

async function tools(page) {
  await page.click("#new");
  await say(page, "What is the weather?");
  expect((await text(page, ".call code")) === "get_weather", "a call is not shown");
  expect((await text(page, ".call pre")).includes('"city": "Bern"'), "a call's arguments are not shown");
  await page.type(".results textarea", "sunny");
  await page.click(".results button");
  await idle(page);
  expect((await answers(page)).at(-1).trim() === "The tool says sunny.", "a tool's result is not sent");
  const sent = (await (await fetch(`${url}/asked`)).json()).at(-1).messages;
  expect(sent.at(-1).role === "tool" && sent.at(-1).tool_call_id === sent.at(-2).tool_calls[0].id, `a tool's result is sent as ${JSON.stringify(sent)}`);
}

// Has answers held: "", "json" or "schema".
async function hold(page, answers, schema = "") {
  await page.click("#show-settings");
  await page.select("#set-answer", answers);
  await page.$eval("#set-schema", (field, schema) => (field.value = schema), schema);
  await page.click("#settings [type='submit']");
}

// The page's reader of JSON, of every beginning of a text, and of what is none.
async function reader() {
  const [source] = /const kDeepest[^]*?\n}\n/.exec(await (await fetch(url)).text());
  const readJson = new Function(`${source} return readJson;`)();
  for (const json of ['{"a\\u00e9\\\\":-1.5e-7,"":[true,false,null,{},[],[[0]]],"\\n":"\\"x\\ud83d\\ude00" }', " [ 10 , -0.25E+3\t]", '"one"']) {
    for (let end = json.search(/\S/) + 1; end <= json.length; ++end) {
      const value = readJson(json.slice(0, end));
      expect(value && value.whole === (end === json.length), `of ${json.slice(0, end)} is read ${JSON.stringify(value)}`);
    }
  }
  const bad = ["", "x", "{a:1}", "[1,]", '{"a":1,}', "[1 2]", "[01]", "[1.]", "[-]", "[tru]", "nul ", '{"a" 1}', '["\\x"]', '["\n"]', "[]]", "['a']", "[}", "[".repeat(200)];
  for (const text of bad) expect(readJson(text) === null, `${text} is read as JSON`);
}

async function structured(page) {
  const schema = '{"type": "object", "properties": {"2": {"maximum": 1.50}, "1": {"maximum": 12345678901234567890}}}';
  await page.click("#new");
  for (const [bad, said] of [['{"type": ', "This is no JSON: "], ["[]", "A JSON Schema is an object."], [`{"name": "a", "schema": ${schema}}`, "The schema alone"]]) {
    await hold(page, "schema", bad);
    expect((await text(page, "#schema-error")).startsWith(said), `of the schema ${bad} is said '${await text(page, "#schema-error")}'`);
    await page.click("#settings-close");
  }
  await hold(page, "schema", schema);
  expect((await text(page, "#held")) === "Answers are JSON by a schema", "the page does not say what answers are held to");

  // It is a tree while it comes, and what was folded stays so.
  await page.type("#input", "json please");
  await page.click("#send");
  await page.waitForFunction(() => document.querySelectorAll(".tree ol > li").length > 0);
  expect((await text(page, ".tree summary")).endsWith("members so far"), `a tree that comes says '${await text(page, ".tree summary")}'`);
  await page.$eval(".tree ul > li > details > summary", (summary) => (summary.focus(), summary.click()));
  await idle(page);
  expect(!(await page.$eval(".tree ul > li > details", (part) => part.open)), "what was folded opens as the answer ends");
  expect((await page.evaluate(() => document.activeElement.textContent)) === "lamps: 2 items", "a tree loses the focus as the answer ends");
  const sent = await (await fetch(`${url}/asked_text`)).text();
  expect(sent.endsWith(`"response_format":{"type":"json_schema","json_schema":{"name":"answer","strict":true,"schema":${schema}}}}`), `a schema is sent as ${sent}`);
  const names = (await texts(page, ".tree > li > details > ul > li > .name, .tree > li > details > ul > li > details > summary > .name")).join();
  expect(names === "title,2,1,open,keeper,none,lamps,notes,last", `the tree has the names ${names}`);
  expect((await texts(page, ".tree .number")).join() === "1.50,12345678901234567890,10,2.5e-1,5,-7", `the tree has the numbers ${await texts(page, ".tree .number")}`);
  expect((await text(page, ".tree .string")) === '"The <b>Lighthouse</b>, \u00fcber all\n"quoted""', `a string is shown as ${await text(page, ".tree .string")}`);
  expect(/ tokens, 12 forced by the schema/.test(await text(page, ".cost > summary")), `the bill says '${await text(page, ".cost > summary")}'`);
  await accessible(page, "a tree");

  const button = async (name) => (await page.$$eval(".assistant:last-child .code-head button", (all, name) => all.find((one) => one.textContent === name).click(), name));
  await button("Fold");
  await page.waitForFunction(() => ![...document.querySelectorAll(".tree details details")].some((part) => part.open));
  await button("Unfold");
  await button("Text");
  const plain = await text(page, ".answer pre");
  expect(plain.startsWith('{"title":"The <b>') && plain.endsWith('"last":-7}') && plain.includes("\\u00fc"), `the text is ${plain}`);
  await accessible(page, "a tree's text");
  await page.reload({ waitUntil: "load" });
  expect((await page.$$(".tree")).length === 1 && !(await page.$eval("#held", (held) => held.hidden)), "a reload makes no tree, or forgets the schema");

  await say(page, "json up to the limit");
  expect((await text(page, ".assistant:last-child .note")) === "The limit of tokens ended this answer. Its JSON is incomplete.", "an answer that is cut is not told");
  expect((await text(page, ".assistant:last-child .tree summary")).endsWith("so far"), "an answer that is cut looks whole");
  await say(page, "words");
  expect((await text(page, ".assistant:last-child .answer pre")) === "You said: words", "an answer that is no JSON is not shown");
  await shot(page, "json-desktop-light");
  await hold(page, "json", schema);
  await say(page, "json again");
  expect(JSON.stringify((await (await fetch(`${url}/asked`)).json()).at(-1).response_format) === '{"type":"json_object"}', "json_object is not sent");
  await hold(page, "");
  expect(await page.$eval("#held", (held) => held.hidden), "free answers are said to be held");
}

// A server that holds answers, and refuses what it cannot hold.
async function held(page) {
  page.expected.push("400");
  await page.click("#new");
  await hold(page, "schema", '{"properties": {"name": {"$dynamicRef": "#x"}}}');
  await say(page, "Say a name.");
  expect((await text(page, ".note.error")).includes("/properties/name: $dynamicRef"), `a refusal says '${await text(page, ".note.error")}'`);
  await hold(page, "schema", '{"type": "object", "properties": {"name": {"enum": ["Romeo", "Juliet"]}}, "required": ["name"], "additionalProperties": false}');
  await say(page, "Say a name.");
  expect(/^"(Romeo|Juliet)"$/.test(await text(page, ".assistant:last-child .tree .string")), `by a schema comes ${await answers(page)}`);
  expect(/ tokens, \d+ forced by the schema/.test(await text(page, ".assistant:last-child .cost > summary")), "the bill has no forced tokens");
  await hold(page, "");
}

async function errors(page) {
  await page.click("#new");
  page.expected.push("400", "ERR_INCOMPLETE_CHUNKED_ENCODING");
  await say(page, "refuse this");
  expect((await text(page, ".note.error")) === "max_tokens: <b>too</b> many", "a refusal is not shown as it is");
  await say(page, "cut it");
  const sent = (await (await fetch(`${url}/asked`)).json()).at(-1).messages;
  expect(sent.length === 1 && sent[0].content === "refuse this\n\ncut it", `after a refusal ${JSON.stringify(sent)} is sent`);
  expect((await answers(page)).at(-1).trim() === "This breaks off", "what came before the connection broke is gone");
  expect(await page.$(".assistant:last-child .note.error"), "a broken connection is not told");
}

// What was exported comes back, and nothing else does.
async function imports(page, all) {
  const one = { ...all[0], id: "1-2", title: "from a file", updated: Date.now() + 1000 };
  const files = {
    "all.json": all, "one.json": one, "bad.json": [{ ...one, id: "../x" }, { ...one, messages: [{ id: 0, parent: 5, role: "user", content: "" }] }, 1],
    "odd.json": { ...one, id: "3-4", title: "odd", messages: one.messages.map((m) => ({ ...m, calls: "f", usage: { prompt_tokens: "<b>" }, error: {}, html: "<b>" })) },
  };
  for (const [name, value] of Object.entries(files)) writeFileSync(`${screenshots}/${name}`, JSON.stringify(value));
  writeFileSync(`${screenshots}/no.json`, "{");
  const [chooser] = await Promise.all([page.waitForFileChooser(), page.click("#import")]);
  await chooser.accept([...Object.keys(files), "no.json"].map((name) => `${screenshots}/${name}`));
  await page.waitForFunction(() => document.getElementById("imported").textContent !== "");
  expect((await text(page, "#imported")) === `${all.length + 2} imported, 4 not understood.`, `an import says '${await text(page, "#imported")}'`);
  const listed = await texts(page, "#conversations .title");
  expect(listed.length === all.length + 2 && listed.includes("from a file"), `after an import the list is ${listed}`);
  await page.$$eval("#conversations .title", (titles) => titles.find((title) => title.textContent === "odd").click());
  expect((await texts(page, ".bubble"))[0] === one.messages[0].content, "an imported conversation is not shown");
  await accessible(page, "list with imports");
}

async function settingsAndList(page) {
  await page.click("#show-settings");
  await page.type("#set-system", "Be short.");
  await page.type("#set-temperature", "0.5");
  await page.type("#set-tools", "{");
  await page.keyboard.press("Tab");
  await page.click("#settings [type='submit']");
  expect((await text(page, "#tools-error")) !== "", "tools that are no list are taken");
  await page.$eval("#set-tools", (field) => (field.value = '[{"type": "function", "function": {"name": "f"}}]'));
  await page.type("#set-key", "secret-of-this-tab");
  await page.select("#set-theme", "dark");
  await accessible(page, "settings");
  await page.click("#settings [type='submit']");
  expect((await page.$eval("html", (root) => root.dataset.theme)) === "dark", "the colours do not change");
  await page.click("#new");
  await say(page, "hello");
  const body = (await (await fetch(`${url}/asked`)).json()).at(-1);
  expect(body.messages[0].role === "system" && body.messages[0].content === "Be short.", "the system prompt is not sent");
  expect(body.temperature === 0.5 && body.tools.length === 1 && body.stream && body.stream_options.include_usage, "settings are not sent");
  const kept = await page.evaluate(() => JSON.stringify({ ...localStorage }));
  expect(!kept.includes("secret-of-this-tab"), "the key is kept beyond the tab");

  const titles = await texts(page, "#conversations .title");
  const all = await page.evaluate(() => Object.entries(localStorage).filter(([name]) => name.startsWith("tally.conversation.")).map(([, text]) => JSON.parse(text)));
  expect(titles[0] === "hello" && titles.length > 1, `the list is ${titles}`);
  await page.click("#conversations li:first-child [aria-label^='Delete']");
  await page.click("#confirm-yes");
  expect((await texts(page, "#conversations .title")).length === titles.length - 1, "a deleted conversation is still listed");
  await page.click("#delete-all");
  await page.click("#confirm-yes");
  expect((await texts(page, "#conversations .title")).length === 0, "conversations are left");
  expect(!(await page.evaluate(() => Object.keys(localStorage).some((name) => name.startsWith("tally.conversation")))), "something is kept of them");
  await imports(page, all);
}

// A server that wants a key: it is told, and sent once it is known.
async function key(page) {
  const lock = (body) => fetch(`${url}/lock`, { method: "POST", body });
  await lock("a-key-of-the-test");
  page.expected.push("401");
  await page.reload({ waitUntil: "load" });
  await page.waitForFunction(() => document.getElementById("model").textContent.includes("key"));
  await page.waitForFunction(() => document.getElementById("live-state").textContent.includes("key"));
  await page.click("#show-settings");
  await page.type("#set-key", "a-key-of-the-test");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.getElementById("model").textContent === "gpt-oss-20b");
  await say(page, "hello");
  expect((await answers(page)).at(-1)?.trim() === "You said: hello", "a key does not open the server");
  await page.waitForSelector('#ledger figure[data-picture="time"] svg');
  await lock("");
}

// The live figures, where the window has room for them or once they are asked for.
async function ledger(page) {
  await page.waitForSelector('#ledger figure[data-picture="time"] svg');
  expect((await texts(page, "#live dt")).some((name) => name.startsWith("speed")), "the engine's speed is not shown");
  if (!scripted) return;
  const cells = () => page.$$eval('figure[data-picture="experts"] path', (paths) => paths.map((path) => path.getAttribute("d")).join(" "));
  const first = await cells();
  expect(first.split("M").length - 1 >= 24 * 32, "the experts' picture has no cells");
  await page.$eval('figure[data-picture="experts"]', (figure) => figure.scrollIntoView({ block: "center" }));
  await page.hover('figure[data-picture="experts"] svg');
  expect(/^layer \d+, expert \d+\n/.test(await text(page, "#tip")), `an expert's tip says '${await text(page, "#tip")}'`);
  await page.waitForFunction((d) => [...document.querySelectorAll('figure[data-picture="experts"] path')].map((path) => path.getAttribute("d")).join(" ") !== d, { timeout: 5000 }, first);
}

at("desktop, light");
let page = await open({ width: 1440, height: 900, scheme: "light" });
await accessible(page, "empty");
await shot(page, "empty-desktop-light");
await ledger(page);
await conversation(page);
if (scripted) {
  await hostile(page);
  await tools(page);
  await errors(page);
  await reader();
  await structured(page);
  await markdown(page);
  await formulas(page);
  await codeColours(page);
  await sampling(page);
  await goingOn(page);
  await slowStop(page);
} else {
  await held(page);
}
await fits(page);
await accessible(page, "conversation");
await shot(page, "desktop-light");
if (scripted) await settingsAndList(page);
await page.close();

at("without storage");
const context = await browser.createBrowserContext();
page = await context.newPage();
page.on("pageerror", (error) => report(`script: ${error.message}`));
await page.evaluateOnNewDocument(() => {
  for (const name of ["localStorage", "sessionStorage"]) Object.defineProperty(window, name, { get() { throw new DOMException("denied", "SecurityError"); } });
});
await page.goto(url, { waitUntil: "load" });
await say(page, "hello");
expect((await texts(page, "#conversations .title")).length === 1, "the conversation is not listed");
await page.close();

if (scripted) {
  at("a key");
  page = await open({ width: 1440, height: 900, scheme: "light" });
  await key(page);
  await page.close();
}

if (scripted) {
  await prefixes();
  await severalModels();
}

at("desktop, dark");
page = await open({ width: 1440, height: 900, scheme: "dark" });
await ledger(page);
await say(page, scripted ? "think of a table in markdown" : "Write a table of three rows.");
await accessible(page, "conversation");
await shot(page, "desktop-dark");
await page.close();

for (const scheme of ["light", "dark"]) {
  at(`phone, ${scheme}`);
  page = await open({ width: 390, height: 844, scheme, phone: true });
  await shot(page, `empty-phone-${scheme}`);
  await say(page, scripted ? "markdown" : "Write a table of three rows.");
  await fits(page);
  await accessible(page, "conversation");
  await shot(page, `phone-${scheme}`);
  if (scripted) {
    await wideTables(page, scheme);
    await hold(page, "schema", "{}");
    await page.click("#show-settings");
    await accessible(page, "settings with a schema");
    await shot(page, `settings-phone-${scheme}`);
    await page.click("#settings-close");
    await say(page, "json");
    await fits(page);
    await accessible(page, "a tree");
    await shot(page, `json-phone-${scheme}`);
  }
  await page.click("#show-ledger");
  await ledger(page);
  await fits(page);
  await accessible(page, "ledger");
  await shot(page, `ledger-phone-${scheme}`);
  await page.keyboard.press("Escape");
  expect(await page.evaluate(() => document.activeElement.id === "show-ledger"), "the ledger does not give the focus back");
  await page.click("#show-list");
  expect((await texts(page, "#conversations .title")).length === 1, "the conversation is not listed");
  await accessible(page, "list");
  await page.close();
}

await browser.close();
console.log(`${findings()} findings`);
process.exitCode = findings() > 0 ? 1 : 0;
