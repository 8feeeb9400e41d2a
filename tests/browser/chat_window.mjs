// SPDX-License-Identifier: Apache-2.0
// What the scripts for the chat page share: the browser, its windows, and what is found there. The command line is chat.mjs's.
import axe from "axe-core";
import puppeteer from "puppeteer-core";

export const [chromium, screenshots, url, ...flags] = process.argv.slice(2);
export const scripted = flags.includes("--scripted"), maths = flags.includes("--maths");
export const kAnswerMilliseconds = 60000;
let found = 0, where = "";
export const findings = () => found;
export const at = (place) => (where = place);

export function report(what) {
  ++found;
  console.log(`${where}: ${what}`);
}
export const expect = (holds, what) => holds || report(what);

export const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb"] });

// A window of its own, with a storage of its own.
export async function open({ width, height, scheme, phone = false, path = "" }) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  page.expected = [];  // console messages that belong to the test
  page.on("console", (message) => page.expected.some((e) => message.text().includes(e)) || report(`console: ${message.text()}`));
  page.on("pageerror", (error) => report(`script: ${error.message}`));
  page.on("dialog", (dialog) => (report(`a script of an answer ran: ${dialog.message()}`), dialog.dismiss()));
  page.on("request", (request) => {
    if (!request.url().startsWith(url) && !/^(data|blob):/.test(request.url())) report(`asks for ${request.url()}`);
  });
  await page.setViewport({ width, height, isMobile: phone, hasTouch: phone });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.goto(url + path, { waitUntil: "load" });
  await page.waitForFunction(() => document.getElementById("model").textContent !== "");
  return page;
}

export const text = (page, selector) => page.$eval(selector, (element) => element.textContent);
export const texts = (page, selector) => page.$$eval(selector, (all) => all.map((element) => element.textContent));
export const answers = (page) => texts(page, ".assistant .answer");
export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
export const idle = (page) => page.waitForFunction(() => !document.getElementById("send").hidden, { timeout: kAnswerMilliseconds });

export async function say(page, message) {
  await page.type("#input", message);
  await page.click("#send");
  await idle(page);
}

export async function accessible(page, what) {
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => window.axe.run({ resultTypes: ["violations"] }));
  for (const v of violations) for (const node of v.nodes) report(`${what}: axe: ${v.id}: ${v.help}: ${node.target.join(" ")}`);
}

export async function fits(page) {
  const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  if (content > window) report(`the page is ${content} px wide`);
}

export const shot = (page, name) => page.screenshot({ path: `${screenshots}/chat-${name}.png` });
