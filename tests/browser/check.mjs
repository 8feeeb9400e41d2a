// SPDX-License-Identifier: Apache-2.0
// usage: node check.mjs CHROMIUM SCREENSHOTS PAGE.html...
// Opens reports in headless Chromium: narrow, usual and wide, light and dark, and printed. Prints a line for each finding and leaves
// screenshots in the folder SCREENSHOTS. Exit code 1: there are findings.
import axe from "axe-core";
import { basename } from "node:path";
import { pathToFileURL } from "node:url";
import puppeteer from "puppeteer-core";

const [chromium, screenshots, ...pages] = process.argv.slice(2);
const kWidths = [390, 1280, 2560], kMostMilliseconds = 1000;
let findings = 0;

// In the page: pairs of labels of one picture that cover each other, labels beyond their picture, and labels that are hard to read.
function pictureFindings() {
  const found = [];
  const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const linear = [r, g, b].map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const contrast = (a, b) => (Math.max(luminance(a), luminance(b)) + 0.05) / (Math.min(luminance(a), luminance(b)) + 0.05);
  const paper = numbers(getComputedStyle(document.body).backgroundColor);
  // The colour of the topmost filled shape under a point of the picture, over paper.
  const under = (picture, x, y) => {
    let colour = paper;
    for (const shape of picture.querySelectorAll("rect, path, polygon, circle")) {
      const box = shape.getBoundingClientRect(), style = getComputedStyle(shape);
      if (x < box.left || x > box.right || y < box.top || y > box.bottom || !style.fill.startsWith("rgb")) continue;
      const point = new DOMPoint(x, y).matrixTransform(picture.getScreenCTM().inverse());
      if (!shape.isPointInFill(point)) continue;
      const share = Number(style.fillOpacity), fill = numbers(style.fill);
      colour = fill.slice(0, 3).map((c, i) => c * share + colour[i] * (1 - share));
    }
    return colour;
  };
  for (const picture of document.querySelectorAll(".picture")) {
    const frame = picture.getBoundingClientRect();
    if (frame.width === 0) continue;  // the one for other widths
    const name = picture.closest("figure").id;
    const labels = [...picture.querySelectorAll("text")].map((text) => ({ text, box: text.getBoundingClientRect() }));
    labels.forEach(({ text, box }, i) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1) {
        found.push(`${name}: '${text.textContent}' leaves its picture`);
      }
      const ratio = contrast(numbers(getComputedStyle(text).fill), under(picture, (box.left + box.right) / 2, (box.top + box.bottom) / 2));
      if (ratio < 4.5) found.push(`${name}: '${text.textContent}' has a contrast of ${ratio.toFixed(2)}`);
      for (const other of labels.slice(i + 1)) {
        const across = Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left);
        const down = Math.min(box.bottom, other.box.bottom) - Math.max(box.top, other.box.top);
        if (across > 0.5 && down > 1.5) found.push(`${name}: '${text.textContent}' and '${other.text.textContent}' cover each other`);
      }
    });
  }
  return found;
}

// In the page: what sorting and filtering do wrong.
function toolFindings() {
  const found = [];
  const expect = (holds, what) => holds || found.push(what);
  const box = [...document.querySelectorAll(".sortable.filterable")].pop();
  if (!box) return ["there is no table to sort and filter"];
  const rows = [...box.querySelectorAll("tbody tr")], shown = () => [...box.querySelectorAll("tbody tr")].filter((row) => !row.hidden);
  const heads = [...box.querySelectorAll("thead th")], column = heads.findIndex((head) => head.classList.contains("n"));
  const values = () => shown().map((row) => Number(row.cells[column].dataset.v ?? row.cells[column].textContent.replaceAll(",", "")));
  const sorted = (sign) => values().every((v, i, all) => i === 0 || sign * (v - all[i - 1]) >= 0);
  heads[column].querySelector("button").click();
  expect(sorted(-1) && heads[column].getAttribute("aria-sort") === "descending", "a click does not sort downwards");
  heads[column].querySelector("button").click();
  expect(sorted(1) && heads[column].getAttribute("aria-sort") === "ascending", "a second click does not sort upwards");
  const input = box.previousElementSibling.querySelector("input");
  const type = (text) => {
    input.value = text;
    input.dispatchEvent(new Event("input"));
  };
  const word = rows[0].cells[0].textContent;
  type(word);
  expect(shown().length > 0 && shown().length < rows.length, `filtering by '${word}' keeps ${shown().length} of ${rows.length} rows`);
  expect(shown().every((row) => row.textContent.includes(word)), "a row is kept that does not match");
  type("no row has this");
  expect(shown().length === 0, "rows are kept that do not match");
  type("");
  expect(shown().length === rows.length, "an empty filter hides rows");
  return found;
}

const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb"] });

async function open(path, { width, scheme = "light", script = true, media = "screen" }) {
  const page = await browser.newPage();
  const where = `${basename(path)}, ${width} px, ${media === "print" ? "printed" : scheme}`;
  const report = (what) => {
    ++findings;
    console.log(`${where}: ${what}`);
  };
  page.on("console", (message) => report(`console: ${message.text()}`));
  page.on("pageerror", (error) => report(`script: ${error.message}`));
  page.on("request", (request) => {
    if (!/^(file|data):/.test(request.url())) report(`asks for ${request.url()}`);
  });
  await page.setJavaScriptEnabled(script);
  await page.setViewport({ width, height: 900 });
  await page.emulateMediaType(media);
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.goto(pathToFileURL(path).href, { waitUntil: "load" });
  return { page, report };
}

async function wide(page, report) {
  const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  if (content > window) report(`the page is ${content} px wide`);
}

for (const path of pages) {
  const name = basename(path, ".html");
  for (const width of kWidths) {
    for (const scheme of ["light", "dark"]) {
      const { page, report } = await open(path, { width, scheme });
      await wide(page, report);
      for (const finding of await page.evaluate(pictureFindings)) report(finding);
      if ((width === kWidths[0]) === (scheme === "light")) {  // each width and each scheme once: this takes seconds
        await page.evaluate(axe.source);
        const { violations } = await page.evaluate(() => window.axe.run({ resultTypes: ["violations"] }));
        for (const v of violations) for (const node of v.nodes) report(`axe: ${v.id}: ${v.help}: ${node.target.join(" ")}`);
        await page.screenshot({ path: `${screenshots}/${name}-${width}-${scheme}.png`, fullPage: true });
      }
      if (scheme === "light") for (const finding of await page.evaluate(toolFindings)) report(finding);
      await page.close();
    }
  }

  const printed = await open(path, { width: 718, media: "print" });  // A4, 10 mm left and right
  await wide(printed.page, printed.report);
  for (const finding of await printed.page.evaluate(pictureFindings)) printed.report(finding);
  await printed.page.pdf({ path: `${screenshots}/${name}.pdf`, format: "A4", margin: { top: "10mm", right: "10mm", bottom: "10mm", left: "10mm" } });
  await printed.page.close();

  // The best of three: others may use the machine.
  let milliseconds = Infinity;
  for (let i = 0; i < 3; ++i) {
    const { page } = await open(path, { width: 1280 });
    milliseconds = Math.min(milliseconds, await page.evaluate(() => performance.getEntriesByType("navigation")[0].loadEventEnd));
    await page.close();
  }
  const without = await open(path, { width: 1280, script: false });
  if (milliseconds > kMostMilliseconds) without.report(`opens in ${Math.round(milliseconds)} ms`);
  const [pictures, rows] = await without.page.evaluate(() => ["svg.picture > title", "tbody tr"].map((all) => document.querySelectorAll(all).length));
  if (pictures === 0 || rows === 0) without.report(`without its script it has ${pictures} pictures and ${rows} rows`);
  await without.page.close();
  console.log(`${name}: opens in ${Math.round(milliseconds)} ms`);
}

await browser.close();
process.exitCode = findings > 0 ? 1 : 0;
