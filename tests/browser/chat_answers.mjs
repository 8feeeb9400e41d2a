// SPDX-License-Identifier: Apache-2.0
// What the chat page makes of answers whose text is known (mock_server.mjs), and of those that end early. For chat.mjs.
import { accessible, answers, at, expect, fits, idle, maths, open, pause, say, shot, text, texts, url } from "./chat_window.mjs";

const asked = async () => (await (await fetch(`${url}/asked`)).json()).at(-1);
const last = (selector) => `.assistant:last-child ${selector}`;

// Formulas keep their source, and are drawn once they are closed; prices and code are none.
export async function formulas(page) {
  await page.click("#new");
  await page.evaluate(() => {
    window.bare = [];
    new MutationObserver(() => {
      for (const said of document.querySelector(".assistant .answer")?.textContent.matchAll(/.?\((?:a\^|b_1).{0,9}/g) ?? []) if (said[0][0] !== "\\") window.bare.push(said[0]);
    }).observe(document.getElementById("messages"), { subtree: true, childList: true, characterData: true });
  });
  await say(page, "formulas please");
  expect((await page.evaluate(() => window.bare.join())) === "", `while a formula comes it is ${await page.evaluate(() => window.bare.join())}`);
  if (maths) await page.waitForSelector(last(".maths math"));
  const said = await text(page, last(".answer"));
  for (const kept of ["It costs $5 and $10, or $7-$9; US$3, $4 and \\(no).", "Code: \\(x\\) and $y$.", "\\[ \\(z\\) $$ \\]", "A refused one, \\(\\nosuch{x}\\)", "The last has no end: \\(c^2 +"]) {
    expect(said.includes(kept), `'${kept}' is not in ${said}`);
  }
  expect((await page.$$(last(".answer em"))).length === 0, "formulas are emphasised");
  if (!maths) return expect(said.includes("Inline \\(a^2\\), \\(b_1*c\\)"), `without KaTeX formulas are ${said}`);
  const drawn = await texts(page, last(".maths math"));
  expect(drawn.length === 11, `${drawn.length} formulas are drawn: ${drawn}`);
  expect(drawn[0] === "a2" && drawn[5] === "\u211d" && drawn.at(-2) === "\u2223x\u22231", `formulas are drawn as ${drawn}`);
  const ends = await page.$$eval(last(".maths mtable mtr > mtd:first-child > mstyle > msub, .maths mtable mtr > mtd:first-child > mstyle > mi"), (all) => all.map((one) => Math.round(one.getBoundingClientRect().right)));
  expect(ends.length === 2 && ends[0] === ends[1], `aligned lines end at ${ends}`);
  expect((await page.$$(last(".maths.display math[display=block]"))).length === 3, "formulas of their own lines are not so");
  expect((await page.$eval(last(".answer"), (answer) => answer.querySelectorAll("annotation, semantics, [style], .katex").length)) === 0, "more than formulas comes from KaTeX");
  await accessible(page, "formulas");
  await fits(page);
  await shot(page, "formulas-desktop-light");
}

export async function codeColours(page) {
  await page.click("#new");
  await say(page, "colours please");
  const blocks = await page.$$eval(last(".code"), (all) => all.map((one) => ({
    text: one.querySelector("code").textContent,
    parts: [...one.querySelectorAll("code span")].map((part) => `${part.className.slice(5)[0]} ${part.textContent}`).join("|"),
  })));
  const wanted = [
    'w @cache|w def|c # a comment, "not a string"|s """Three\n    lines."""|w return|s "{x} # no comment"|w if|n 0x1f|w else|w None',
    "w #include|c /* two\nlines */|w int|w return|s 'a'|n 1.5e3|n 0|n 1'000|c // end", "w + added|s - removed", "", 'w <p|w >|s "a"|w </p|w >', "w const|s `not ${closed\n"];
  wanted.forEach((parts, i) => expect(blocks[i]?.parts.replace('w <p|s "a"|w >', 'w <p|w >|s "a"') === parts, `code ${i} has the parts ${blocks[i]?.parts}`));
  expect(blocks[3]?.text === 'if return "x"\n', `unknown code is ${blocks[3]?.text}`);
  expect(blocks[0]?.text.startsWith("@cache\ndef f(x):  # a comment") && blocks[0].text.endsWith("else None\n"), `coloured code is ${blocks[0]?.text}`);
  await accessible(page, "code");
  await shot(page, "code-desktop-light");
}

// A table that is too wide scrolls for itself, and its columns stand as they were written.
export async function wideTables(page, scheme) {
  await say(page, "columns please");
  const [inner, outer] = await page.$eval(last(".answer .table"), (box) => [box.scrollWidth, box.clientWidth]);
  expect(inner > outer, `a wide table has ${inner} px in ${outer}`);
  const sides = await page.$$eval(last(".answer td"), (cells) => cells.slice(0, 3).map((cell) => getComputedStyle(cell).textAlign));
  expect(["left,center,right", "start,center,right"].includes(sides.join()), `columns are aligned ${sides}`);
  const heights = await page.$$eval(last(".answer td"), (cells) => cells.slice(3).map((cell) => cell.firstChild && getComputedStyle(cell).overflowWrap));
  expect(heights.every((wrap) => wrap === "break-word"), `words of tables are broken: ${heights}`);
  await fits(page);
  await accessible(page, "a wide table");
  await shot(page, `table-phone-${scheme}`);
}

export async function sampling(page) {
  await page.click("#new");
  const values = { "top-p": 0.9, "top-k": 40, "min-p": 0.05, seed: 7, repetition: 1.1, presence: 0.5, frequency: -0.5 };
  const set = (values) => page.evaluate((values) => Object.entries(values).forEach(([name, value]) => (document.getElementById(`set-${name}`).value = value)), values);
  await page.click("#show-settings");
  await set({ ...values, "top-p": 2 });
  await page.click("#settings [type='submit']");
  expect(await page.$eval("#settings", (dialog) => dialog.open && dialog.querySelector("#sampling").open), "a top p of 2 is taken, or is not told of");
  await set(values);
  await accessible(page, "sampling");
  await shot(page, "settings-desktop-light");
  await page.click("#settings [type='submit']");
  await say(page, "hello");
  const { top_p, top_k, min_p, seed, repetition_penalty, presence_penalty, frequency_penalty } = await asked();
  const sent = [top_p, top_k, min_p, seed, repetition_penalty, presence_penalty, frequency_penalty].join();
  expect(sent === "0.9,40,0.05,7,1.1,0.5,-0.5", `of sampling is sent ${sent}`);
  await page.click("#show-settings");
  await set(Object.fromEntries(Object.keys(values).map((name) => [name, ""])));
  await page.click("#settings [type='submit']");
  await say(page, "hello");
  expect(!Object.keys(await asked()).some((name) => /^top_|_penalty$|^min_p$|^seed$/.test(name)), "empty fields are sent");
}

// A reload in the midst of an answer keeps what had come, says so, and the rest can be had.
export async function goingOn(page) {
  await page.click("#new");
  await page.type("#input", "slowly");
  await page.click("#send");
  await page.waitForFunction(() => document.querySelector(".assistant .answer")?.textContent.includes("three"));
  await page.reload({ waitUntil: "load" });
  const kept = (await answers(page)).at(-1).trim();
  expect(kept.startsWith("one two three"), `after a reload '${kept}' is kept`);
  expect((await text(page, last(".note"))) === "This answer was interrupted.", `after a reload the answer says '${await text(page, last(".note"))}'`);
  expect((await text(page, last(".more"))) === "Go on", "nothing is offered after a reload");
  await page.waitForFunction(() => document.getElementById("model").textContent !== "");
  await accessible(page, "an interrupted answer");
  await shot(page, "interrupted-desktop-light");
  await page.click(last(".more"));
  await idle(page);
  const body = await asked(), whole = "one two three four five six seven eight nine ten eleven twelve ".repeat(3).trim();
  expect(body.continue_final_message === true && body.add_generation_prompt === false, "the answer is not asked to go on");
  expect(body.messages.at(-1).role === "assistant" && body.messages.at(-1).content.trim() === kept, `what is to go on is ${JSON.stringify(body.messages.at(-1))}`);
  expect((await answers(page)).at(-1).trim() === whole, `an answer that went on is ${(await answers(page)).at(-1)}`);
  expect(await page.$eval(last(".more"), (more) => more.hidden), "more is offered of a whole answer");
  expect((await text(page, last(".cost > summary"))).includes("without what came before"), "a part without a bill is not told of");

  await page.type("#input", "silently");
  await page.click("#send");
  await page.waitForSelector(last(".wait"));
  await pause(300);
  await page.reload({ waitUntil: "load" });
  expect((await text(page, last(".note"))) === "This answer was interrupted.", `an answer that had not begun says '${await text(page, last(".note"))}'`);
  expect((await text(page, last(".more"))) === "Answer again", "an answer that had not begun is not offered again");
}

// A server that ends its step first gives the bill of what was stopped, and that of the rest is added.
export async function slowStop(page) {
  await page.click("#new");
  await page.type("#input", "dawdle");
  await page.click("#send");
  await page.waitForFunction(() => document.querySelector(".assistant .answer")?.textContent.length > 20);
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => document.querySelector(".assistant .note").textContent === "Stopping \u2026");
  await idle(page);
  expect((await text(page, last(".note"))) === "Stopped.", `a stopped answer says '${await text(page, last(".note"))}'`);
  const tokens = async () => Number(/([\d,]+) tokens/.exec(await text(page, last(".cost > summary")))[1]);
  expect(await page.$(last(".cost")), "an answer that was stopped in a long step has no bill");
  const before = await tokens();
  await page.click(last(".more"));
  await idle(page);
  expect((await tokens()) === before + 4, `bills of ${before} and 4 tokens are ${await tokens()}`);
}

// Behind a prefix, with and without its last slash, everything that the page asks for is behind it, too.
export async function prefixes() {
  for (const path of ["/llm/", "/llm"]) {
    at(`at ${path}`);
    const page = await open({ width: 1440, height: 900, scheme: "light", path }), foreign = [];
    page.on("request", (request) => new URL(request.url()).pathname.startsWith("/llm/") || foreign.push(request.url()));
    await page.waitForSelector('#ledger figure[data-picture="time"] svg');
    await page.type("#input", "a long story");
    await page.click("#send");
    await page.waitForFunction(() => document.querySelector(".assistant .answer")?.textContent.length > 5);
    await page.keyboard.press("Escape");
    await idle(page);
    expect(await page.$(last(".cost")), "a stopped answer has no bill");
    expect(foreign.length === 0, `the page asks for ${foreign}`);
    await page.close();
  }
}

export async function severalModels() {
  const serve = (names) => fetch(`${url}/serve`, { method: "POST", body: JSON.stringify(names) });
  at("two models");
  await serve(["alpha", "beta"]);
  const page = await open({ width: 1440, height: 900, scheme: "light" }), shown = () => page.$eval("#models", (models) => (models.hidden ? "" : models.value));
  expect((await shown()) === "alpha" && (await texts(page, "#models option")).join() === "alpha,beta", `of two models ${await shown()} is chosen`);
  await page.select("#models", "beta");
  await say(page, "hello");
  expect((await asked()).model === "beta", `the model ${(await asked()).model} is asked`);
  expect((await text(page, last(".cost > summary"))).endsWith("beta"), "a bill does not name the model");
  await accessible(page, "two models");
  await shot(page, "models-desktop-light");
  await page.reload({ waitUntil: "load" });
  await page.waitForFunction(() => document.getElementById("model").textContent !== "");
  expect((await shown()) === "beta", "a reload forgets the model");
  await serve(["gpt-oss-20b"]);
  await page.reload({ waitUntil: "load" });
  await page.waitForFunction(() => document.getElementById("model").textContent !== "");
  await say(page, "hello again");
  expect((await shown()) === "" && (await asked()).model === "gpt-oss-20b", "of one model there is a choice, or another is asked");
  await page.close();
}
