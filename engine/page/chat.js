// SPDX-License-Identifier: Apache-2.0
// The chat: what the reader does, and what is shown of it.

const wide = matchMedia("(min-width: 1100px)");
const kSamples = [
  "Why does a mixture of experts need less arithmetic than a dense model?",
  "Write a Python function that merges two sorted lists, with a test.",
  "Compare three sorting algorithms in a table.",
  "Tell a story of four sentences about a lighthouse.",
];

let conversation = newConversation(), views = new Map();
let running = null;  // {controller, conversation, message, id} of the answer that comes; id: the server's, once it is known
const kStopMilliseconds = 30000;  // for the server to end an answer with its bill, after the step that runs
const kEndMilliseconds = 2000;    // for an answer to end of which the server says that there is none
let left = -Infinity;             // when the page was left, which ends its requests
const kLeaveMilliseconds = 5000;

const ledgerShown = () => (wide.matches ? settings.ledger : document.body.classList.contains("ledger-open"));
const isRunning = (message) => running?.message === message;

// --- what is shown

const atEnd = () => byId("scroll").scrollHeight - byId("scroll").scrollTop - byId("scroll").clientHeight < 80;
const toEnd = () => (byId("scroll").scrollTop = byId("scroll").scrollHeight);
const showToEnd = () => (byId("to-end").hidden = atEnd());

const actions = {
  get conversation() {
    return conversation;
  },
  busy: () => running !== null,
  running: isRunning,
  stopping: (message) => isRunning(message) && Boolean(running.stopping),
  answered: (message) => conversation.messages.some((m) => m.parent === message.id),
  show(message) {
    showBranch(conversation, message);
    saveConversation(conversation);
    draw();
  },
  redraw: () => draw(),
  edit(message, text) {
    addMessage(conversation, { role: "user", parent: message.parent, content: text });
    answer(conversation.leaf);
  },
  again: (message) => answer(message.parent),
  goOn(message) {
    if (running) return;
    if (message.content && !message.usage) message.unbilled = true;
    for (const name of ["finish", "stopped", "error"]) delete message[name];
    fillAnswer(message, message.id);
  },
  results(message, texts) {
    message.calls.forEach((call, i) => addMessage(conversation, { role: "tool", parent: conversation.leaf, call: call.id, name: call.name, content: texts[i] }));
    answer(conversation.leaf);
  },
};

// The whole conversation anew.
function draw() {
  const focused = document.activeElement;
  views = new Map(path(conversation).map((message) => [message, messageView(message, actions)]));
  byId("messages").replaceChildren(...[...views.values()].map((view) => view.item));
  if (focused.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });  // in a tree, which stays
  byId("welcome").hidden = views.size > 0;
  document.title = conversation.title ? `${conversation.title} \u00b7 Tally` : "Tally";
  showCost(conversation);
  drawList();
  drawButtons();
  showToEnd();
}

function drawButtons() {
  byId("send").hidden = running !== null;
  byId("stop").hidden = running === null;
  byId("send").disabled = !byId("input").value.trim();
}

function drawList() {
  const entry = (c) => {
    const title = make("button", { type: "button", className: "title", textContent: c.title || "Untitled", onclick: () => openConversation(c.id) });
    if (c.id === conversation.id) title.setAttribute("aria-current", "true");
    const name = c.title || "Untitled";
    return make("li", {}, title, iconButton("save", `Export: ${name}`, () => download(`tally-${c.id}.json`, c)),
      iconButton("remove", `Delete: ${name}`, () => remove(`Delete "${name}"?`, [c.id])));
  };
  const all = storedConversations();
  byId("conversations").replaceChildren(...all.map(entry));
  byId("no-conversations").hidden = all.length > 0;
  byId("export-all").disabled = byId("delete-all").disabled = all.length === 0;
}

// Says aloud what has come, sentence by sentence; `rest` too where the answer has ended.
function speak(run, rest = false) {
  if (run.message.held && !rest) return;
  const text = run.message.held ? spokenJson(run.message.content) : run.message.content.slice(run.spoken);
  const end = rest ? text.length : Math.max(...[". ", "! ", "? ", "\n"].map((stop) => text.lastIndexOf(stop) + 1));
  if (end <= 0) return;
  run.spoken += end;
  if (run.conversation === conversation) byId("spoken").append(make("p", { textContent: text.slice(0, end) }));
}

// --- an answer

// Shows what has come, at most so often that showing takes a third of the time.
function showSoon(run) {
  if (run.timer) return;
  run.timer = setTimeout(() => {
    const begun = performance.now();
    run.timer = 0;
    showRun(run);
    run.pause = Math.max(50, 3 * (performance.now() - begun));
  }, run.pause);
}

function showRun(run) {
  speak(run);
  if (!run.deleted && Date.now() - run.saved > 2000) {
    run.saved = Date.now();
    saveConversation(run.conversation);
  }
  if (run.conversation !== conversation) return;
  const follow = atEnd();
  views.get(run.message)?.update();
  if (follow) toEnd();
  showToEnd();
}

function answer(parent) {
  if (running) return;
  const message = addMessage(conversation, { role: "assistant", parent, content: "", time: Date.now() });
  if (settings.answer) message.held = settings.answer;
  fillAnswer(message, parent);
}

// Asks for `message`: what follows the messages up to `leaf`, or, where it is the leaf itself, the rest of it.
async function fillAnswer(message, leaf) {
  const run = (running = { controller: new AbortController(), conversation, message, timer: 0, pause: 50, saved: 0, spoken: message.content.length });
  byId("spoken").replaceChildren();
  session.setItem("tally.open", conversation.id);
  conversation.updated = Date.now();
  saveConversation(conversation);
  draw();
  toEnd();
  try {
    if (!model) await findModels(run.controller.signal);
    if (models.length > 1) message.model = model;
    await ask(model, path(run.conversation, leaf), message, run.controller.signal, (id) => hear(run, id));
    if (run.stopping) message.stopped = true;
  } catch (error) {
    if (run.controller.signal.aborted || run.stopping) message.stopped = true;
    else if (performance.now() - left > kLeaveMilliseconds) message.error = error instanceof TypeError ? "The server does not answer." : error.message;
  }
  finish(run);
}

function hear(run, id) {
  if (!run.id && id) {
    run.id = id;
    if (run.stopping) cancel(run);
  }
  showSoon(run);
}

function finish(run) {
  clearTimeout(run.timer);
  clearTimeout(run.stopping);
  running = null;
  speak(run, true);
  if (run.message.calls) run.message.calls = run.message.calls.filter(Boolean);
  if (!run.deleted && !saveConversation(run.conversation)) run.message.error ??= "The browser has no room to keep this conversation.";
  const follow = atEnd();
  draw();
  if (follow) toEnd();
  if (wide.matches && document.activeElement === document.body) byId("input").focus();
  if (run.message.error) showModel();
}

// The server is asked to end the answer, so that its bill comes; the second time, or where it does not, the connection ends.
function stop() {
  const run = running;
  if (!run) return;
  if (run.stopping) return run.controller.abort();
  run.stopping = setTimeout(() => run.controller.abort(), kStopMilliseconds);
  showRun(run);
  if (run.id) cancel(run);
}

async function cancel(run) {
  if ((await cancelAnswer(run.id)) || running !== run) return;
  clearTimeout(run.stopping);
  run.stopping = setTimeout(() => run.controller.abort(), kEndMilliseconds);
}

function send() {
  const text = byId("input").value.trim();
  if (!text || running) return;
  byId("input").value = "";
  sizeInput();
  addMessage(conversation, { role: "user", parent: conversation.leaf, content: text });
  answer(conversation.leaf);
}

// --- conversations

function openConversation(id) {
  const found = running?.conversation.id === id ? running.conversation : storedConversation(id);
  if (!found) return drawList();
  conversation = found;
  session.setItem("tally.open", id);
  close();
  draw();
  toEnd();
  if (wide.matches) byId("input").focus();
}

function startConversation() {
  conversation = newConversation();
  session.removeItem("tally.open");
  close();
  draw();
  byId("input").focus();
}

// Files of Export: one conversation, or a list. One that is here already stays as it is where it is the newer one.
async function importFiles(files) {
  let taken = 0, bad = 0;
  for (const file of files) {
    const value = parsed(await file.text(), null);
    for (const one of Array.isArray(value) ? value : [value]) {
      const imported = importedConversation(one), here = imported && storedConversation(imported.id);
      if (!imported) ++bad;
      else if (running?.conversation.id !== imported.id && (!here || here.updated < imported.updated) && saveConversation(imported)) ++taken;
    }
  }
  byId("import-file").value = "";
  byId("imported").textContent = `${count(taken)} imported${bad > 0 ? `, ${count(bad)} not understood` : ""}.`;
  const again = storedConversation(conversation.id);
  if (taken > 0 && again && !running) conversation = again, draw();
  drawList();
}

function remove(question, ids) {
  byId("confirm-title").textContent = question;
  byId("confirm-yes").onclick = () => {
    byId("confirm").close();
    if (running && ids.includes(running.conversation.id)) running.deleted = true, running.controller.abort();
    ids.forEach(deleteConversation);
    if (ids.includes(conversation.id)) startConversation();
    else drawList();
  };
  byId("confirm").showModal();
}

// --- drawers

function close() {
  const opener = document.body.matches(".list-open") ? "show-list" : document.body.matches(".ledger-open") ? "show-ledger" : "";
  document.body.classList.remove("list-open", "ledger-open");
  expanded();
  if (opener && !wide.matches) byId(opener).focus();
  followLive();
}

function toggle(name) {
  if (name === "ledger" && wide.matches) {
    settings.ledger = !settings.ledger;
    saveSettings();
  } else {
    const open = document.body.classList.contains(`${name}-open`);
    document.body.classList.remove("list-open", "ledger-open");
    document.body.classList.toggle(`${name}-open`, !open);
  }
  expanded();
  followLive();
}

function expanded() {
  const listOpen = document.body.classList.contains("list-open");
  document.body.classList.toggle("no-ledger", wide.matches && !settings.ledger);
  byId("show-list").setAttribute("aria-expanded", String(listOpen));
  byId("show-ledger").setAttribute("aria-expanded", String(ledgerShown()));
  const over = !wide.matches && (listOpen || ledgerShown());
  byId("shade").hidden = !over;
  byId("chat").inert = byId("head").inert = over;
  if (over) byId(listOpen ? "list" : "ledger").querySelector("button").focus();
}

// --- keys and buttons

function sizeInput() {
  const input = byId("input");
  input.style.height = "auto";
  input.style.height = `${Math.min(input.scrollHeight + 2, innerHeight * 0.4)}px`;
  drawButtons();
}

function onKey(event) {
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    if (document.body.matches(".list-open, .ledger-open")) close();
    else stop();
  }
  const typing = event.target.closest("input, textarea, select");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    byId("input").focus();
  }
}

function onInputKey(event) {
  const touch = matchMedia("(pointer: coarse)").matches;  // there a key for new lines is hard to find
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || touch) return;
  event.preventDefault();
  send();
}

function listen() {
  const clicks = {
    "new": startConversation, "stop": stop, "to-end": toEnd, "shade": close, "show-settings": openSettings, "held-by": openSettings, "ledger-close": () => (wide.matches ? toggle("ledger") : close()),
    "settings-close": () => byId("settings").close(), "confirm-no": () => byId("confirm").close(), "show-list": () => toggle("list"),
    "show-ledger": () => toggle("ledger"), "export-all": () => download("tally-conversations.json", storedConversations()),
    "import": () => byId("import-file").click(),
    "delete-all": () => remove("Delete all conversations?", conversationNames().map((name) => name.slice(kConversation.length))),
  };
  for (const [id, call] of Object.entries(clicks)) byId(id).addEventListener("click", call);
  byId("composer").addEventListener("submit", (event) => (event.preventDefault(), send()));
  byId("settings-form").addEventListener("submit", (event) => (event.preventDefault(), closeSettings()));
  byId("settings-form").addEventListener("invalid", () => (byId("sampling").open = true), true);  // what is folded cannot be told of
  byId("set-answer").addEventListener("change", showSchemaField);
  byId("models").addEventListener("change", chooseModel);
  byId("set-schema").addEventListener("dragover", (event) => event.dataTransfer.types.includes("Files") && event.preventDefault());
  byId("set-schema").addEventListener("drop", dropSchema);
  byId("import-file").addEventListener("change", (event) => importFiles([...event.target.files]));
  byId("input").addEventListener("input", sizeInput);
  byId("input").addEventListener("keydown", onInputKey);
  byId("scroll").addEventListener("scroll", showToEnd, { passive: true });
  byId("ledger").addEventListener("scroll", showPictures, { passive: true });
  document.addEventListener("keydown", onKey);
  document.addEventListener("visibilitychange", followLive);
  wide.addEventListener("change", close);
  addEventListener("storage", drawList);
  addEventListener("beforeunload", () => (left = performance.now()));
  addEventListener("pagehide", () => {
    left = performance.now();
    if (running && !running.deleted) saveConversation(running.conversation);
  });
  onMaths = () => views.forEach((view) => view.update());
}

function begin() {
  applyTheme();
  for (const figure of document.querySelectorAll("figure")) figure.hidden = true;
  const sample = (text) => make("li", {}, make("button", { type: "button", textContent: text, onclick: () => ((byId("input").value = text), send()) }));
  byId("samples").append(...kSamples.map(sample));
  tellExperts();
  listen();
  conversation = storedConversation(session.getItem("tally.open") ?? "") ?? conversation;
  draw();
  toEnd();
  close();
  sizeInput();
  showHeld();
  showModel();
  if (wide.matches) byId("input").focus();
}
begin();
