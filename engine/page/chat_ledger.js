// SPDX-License-Identifier: Apache-2.0
// The ledger beside the chat: what the conversation cost, and the engine as GET /live tells of it. Pictures come from the server.

function fill(list, rows) {
  const entry = ([name, value, note]) =>
    make("div", {}, make("dt", { textContent: name }), make("dd", { textContent: value }), ...(note ? [make("dd", { textContent: note })] : []));
  list.replaceChildren(...rows.map(entry));
}

// Sums over all answers, also those that were made again.
function showCost(conversation) {
  const costs = conversation.messages.map(costOf).filter(Boolean), all = (name) => sum(costs.map((c) => c[name]));
  const last = costs.at(-1), rows = [];
  if (costs.length === 0) {
    rows.push(["answers", "0", "nothing yet"]);
  } else {
    rows.push(["arithmetic", si(all("flops"), "FLOP"), `of ${costs.length} ${costs.length === 1 ? "answer" : "answers"}`]);
    rows.push(["memory traffic", si(all("bytes"), "B"), "weights, KV, states"]);
    if (all("disk") > 0) rows.push(["from disk", si(all("disk"), "B"), "experts"]);
    rows.push(["prompts", `${count(all("read"))} tokens`, `${count(all("cached"))} not run again`]);
    const notes = [all("seconds") > 0 ? `in ${si(all("seconds"), "s")}` : "", all("forced") > 0 ? `${count(all("forced"))} forced` : ""];
    rows.push(["answers", `${count(all("written"))} tokens`, notes.filter(Boolean).join(", ")]);
    if (last.touched > 0) rows.push(["touched", si(last.touched, ""), "parameters, last answer"]);
  }
  fill(byId("cost"), rows);
}

// --- live

function pictureOf(text) {
  const picture = new DOMParser().parseFromString(text, "text/html").querySelector("svg");
  return picture ? document.importNode(picture, true) : null;
}

const figureOf = (name) => document.querySelector(`figure[data-picture="${name}"]`);
const drawn = new Map();  // the text of each picture that is shown

function inView(figure) {
  const box = figure.getBoundingClientRect();
  return box.bottom > 0 && box.top < innerHeight;
}

// The browser shares its processor with the engine: what is out of view or has not changed is left as it is.
function showPicture(name, text) {
  const figure = figureOf(name), before = figure.querySelector("svg");
  if (drawn.get(name) === text || (before && text && !inView(figure))) return;
  drawn.set(name, text);
  before?.remove();
  const picture = text ? pictureOf(text) : null;
  if (picture) figure.append(picture);
  figure.hidden = !picture;
}

let expertLetters = "", paintedLetters = "";

// Fills the cells of the experts' picture: `letters` has one for each, a shade from "a" to "k", capital where the last step used it.
function paintExperts(letters) {
  const figure = figureOf("experts"), picture = figure.querySelector("svg");
  expertLetters = letters;
  if (!picture?.dataset.grid || !inView(figure) || (paintedLetters === letters && picture.querySelector("path[d^=M]"))) return;
  paintedLetters = letters;
  const [left, top, width, height, columns, rows] = picture.dataset.grid.split(" ").map(Number);
  const w = width / columns, h = height / rows, gap = Number(picture.dataset.gap);
  const paths = picture.querySelectorAll("path"), lit = paths.length - 1, cells = Array.from(paths, () => []);
  const pathOf = (i) => (letters.charCodeAt(i) < 97 ? lit : letters.charCodeAt(i) - 97);
  const length = Math.min(letters.length, columns * rows);
  for (let i = 0, next; i < length; i = next) {
    // Neighbours of one shade are one rectangle where there are no gaps between cells.
    const path = pathOf(i);
    for (next = i + 1; gap === 0 && next < length && next % columns !== 0 && pathOf(next) === path; ++next);
    const x = left + (i % columns) * w, y = top + Math.floor(i / columns) * h, across = (next - i) * w - gap;
    cells[path]?.push(`M${x.toFixed(1)},${y.toFixed(1)}h${across.toFixed(1)}v${(h - gap).toFixed(1)}h-${across.toFixed(1)}z`);
  }
  paths.forEach((path, i) => path.setAttribute("d", cells[i].join("")));
}

let lastLive = null, expertsFrame;  // the event that is shown; the last frame of the experts that came

function showPictures() {
  if (!lastLive) return;
  for (const name of ["parameters", "time", "recent", "bytes", "flops", "roofline", "memory"]) showPicture(name, lastLive.pictures[name]);
  showPicture("experts", expertsFrame);
  paintExperts(lastLive.experts);
}

function showLive(event) {
  const { token, step, roofs, parameters } = event, rows = [];
  const inEach = Number(step.rows.toPrecision(3)).toLocaleString("en");
  const steps = step.steps > 1 ? `mean of the last ${count(step.steps)} steps, ${inEach} in each` : `${inEach} in the last step`;
  if (token.seconds > 0) rows.push(["speed", `${rate(1 / token.seconds)} tokens/s`, steps]);
  if (roofs.read_seconds > 0 && token.seconds > 0) {
    rows.push(["of the read roof", `${((100 * roofs.read_seconds) / token.seconds).toFixed(0)} %`, `${si(token.bytes / token.seconds, "B/s")} of ${si(roofs.read, "B/s")}`]);
  }
  if (parameters.total > 0) {
    rows.push(["active parameters", `${((100 * parameters.active) / parameters.total).toFixed(1)} %`, `${si(parameters.active, "")} of ${si(parameters.total, "")}`]);
  }
  rows.push(["requests", `${count(event.running)} running`, `${count(event.waiting)} waiting`]);
  fill(byId("live"), rows);
  lastLive = event;
  expertsFrame = event.experts ? (event.pictures.experts ?? expertsFrame) : "";
  showPictures();
}

// What an expert's letter says.
function expertText(letter) {
  const shade = letter.toLowerCase().charCodeAt(0) - 97;
  const used = shade === 0 ? "never used" : `${shade === 1 ? "up to" : "about"} ${10 * shade} % of the most used`;
  return letter < "a" ? `${used}, and by the last step` : used;
}

// Tells of the expert under the pointer.
function tellExperts() {
  const show = makeTip(), figure = document.querySelector('figure[data-picture="experts"]');
  figure.addEventListener("pointermove", (event) => {
    const picture = figure.querySelector("svg"), cell = picture?.dataset.grid ? cellAt(picture, event) : null;
    const letter = cell && expertLetters[cell.row * Number(picture.dataset.grid.split(" ")[4]) + cell.column];
    show(letter ? `layer ${picture.dataset.rows.split(" ")[cell.row]}, expert ${cell.column}\n${expertText(letter)}` : "", event);
  });
  figure.addEventListener("pointerleave", (event) => show("", event));
}

let live = null;  // of the stream that is read

async function readLive(signal) {
  const response = await fetch(`${kBeside}live`, { headers: headers(), signal });
  if (response.status === 404) throw Object.assign(new Error("This server shows no live figures."), { final: true });
  if (!response.ok) throw Object.assign(new Error(await errorOf(response)), { final: response.status < 500 });
  byId("live-state").textContent = "";
  for await (const { name, data } of events(response)) if (name === "step") showLive(JSON.parse(data));
}

// Reads while somebody looks, and begins again where the stream ends.
async function followLive() {
  stopLive();
  if (document.hidden || !ledgerShown()) return;
  const mine = (live = new AbortController());
  for (let pause = 1000; live === mine; pause = Math.min(pause * 2, 30000)) {
    const begun = Date.now();
    try {
      await readLive(mine.signal);
    } catch (error) {
      if (mine.signal.aborted) return;
      byId("live-state").textContent = error.final ? error.message : "No live figures: the server does not answer.";
      if (error.final) return;
    }
    if (Date.now() - begun > 10000) pause = 1000;
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

function stopLive() {
  live?.abort();
  live = null;
}

