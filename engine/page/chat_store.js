// SPDX-License-Identifier: Apache-2.0
// Small tools, settings, and the conversations that the browser keeps.

const byId = (id) => document.getElementById(id);

// make("a", {href: "#"}, "text", child): an element. `className`, listeners (`onclick`) and properties as they are called in the DOM.
function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

// 4187440704, "FLOP" -> "4.19 GFLOP", as the report has it.
function si(value, unit) {
  const prefixes = ["", "k", "M", "G", "T", "P", "E"];
  if (!(value > 0)) return `0 ${unit}`;
  if (value < 1) return unit === "s" ? `${(value * 1000).toPrecision(3)} ms` : `${value.toPrecision(3)} ${unit}`;
  let power = Math.min(Math.floor(Math.log10(value) / 3), prefixes.length - 1);
  if (Number((value / 1000 ** power).toPrecision(3)) >= 1000 && power < prefixes.length - 1) ++power;
  const scaled = value / 1000 ** power;
  const digits = power === 0 && Number.isInteger(value) ? 0 : Math.max(0, 2 - Math.floor(Math.log10(scaled)));
  return `${scaled.toFixed(digits)} ${prefixes[power]}${unit}`.trim();
}
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const rate = (n) => (n < 1000 ? n.toPrecision(3) : count(n));  // tokens a second
const count = (n) => Math.round(n).toLocaleString("en");

// What the browser keeps: localStorage or sessionStorage, or, where its settings forbid them, memory until the page is closed.
function openStorage(name) {
  try {
    window[name].getItem("");
    return window[name];
  } catch {
    const kept = new Map();
    return { kept, getItem: (key) => kept.get(key) ?? null, setItem: (key, text) => kept.set(key, text), removeItem: (key) => kept.delete(key) };
  }
}
const local = openStorage("localStorage"), session = openStorage("sessionStorage");

// --- settings

// `answer`: how answers are held: "", "json" or "schema". `model`: of several that are served. Numbers are texts, empty for the server's own.
const kSettings = {
  system: "", temperature: "", max: "", effort: "", theme: "", answer: "", schema: "", tools: "", ledger: true, model: "",
  topP: "", topK: "", minP: "", seed: "", repetition: "", presence: "", frequency: "",
};
const kSettingsName = "tally.settings";

function parsed(text, otherwise) {
  try {
    return JSON.parse(text) ?? otherwise;
  } catch {
    return otherwise;
  }
}

// The key is asked for again in another tab.
const settings = { ...kSettings, ...parsed(local.getItem(kSettingsName), {}), key: session.getItem("tally.key") ?? "" };

function saveSettings() {
  const { key, ...kept } = settings;
  session.setItem("tally.key", key);
  store(kSettingsName, JSON.stringify(kept));
}

// False: the browser has no room.
function store(name, text) {
  try {
    local.setItem(name, text);
    return true;
  } catch {
    return false;
  }
}

// --- conversations
//
// {id, title, updated, leaf, messages: [{id, parent, role, content, ...}]}: a tree, since a message that is edited or an answer that is
// made again stands beside the first one. `leaf`: the last message of those that are shown; -1: none.

const kConversation = "tally.conversation.", kMostConversations = 100, kMostCharacters = 4000000;

const newConversation = () => ({ id: crypto.getRandomValues(new Uint32Array(2)).join("-"), title: "", updated: Date.now(), leaf: -1, messages: [] });

function isConversation(c) {
  const isMessage = (m, i) => m?.id === i && Number.isInteger(m.parent) && m.parent < i && typeof m.role === "string" && typeof m.content === "string";
  return typeof c?.id === "string" && typeof c.title === "string" && Number.isInteger(c.leaf) && Array.isArray(c.messages) && c.messages.every(isMessage) && c.leaf < c.messages.length;
}

const isText = (value) => typeof value === "string";
const isPlain = (value, depth = 0) => Number.isFinite(value) || (depth < 8 && value !== null && typeof value === "object" && Object.values(value).every((v) => isPlain(v, depth + 1)));
const isCall = (call) => call && [call.id, call.name, call.arguments].every(isText);

// What of a file is a conversation: fields that are known and of their type. null: none is in it.
function importedConversation(c) {
  if (!isConversation(c) || !/^[0-9-]{1,40}$/.test(c.id) || c.messages.some((m) => !["user", "assistant", "tool"].includes(m.role))) return null;
  const fields = { reasoning: isText, finish: isText, error: isText, call: isText, name: isText, model: isText, unbilled: (v) => v === true, held: (v) => v === "json" || v === "schema", stopped: (v) => v === true, time: Number.isFinite, usage: isPlain, calls: (v) => Array.isArray(v) && v.every(isCall) };
  const messages = c.messages.map((m) => {
    const kept = { id: m.id, parent: m.parent, role: m.role, content: m.content };
    for (const [name, holds] of Object.entries(fields)) if (holds(m[name])) kept[name] = m[name];
    return kept;
  });
  return { id: c.id, title: c.title, updated: Number.isFinite(c.updated) ? c.updated : Date.now(), leaf: c.leaf, messages };
}

const conversationNames = () => (local.kept ? [...local.kept.keys()] : Object.keys(local)).filter((name) => name.startsWith(kConversation));

// The newest first. What cannot be read is left out.
function storedConversations() {
  const all = conversationNames().map((name) => parsed(local.getItem(name), null)).filter(isConversation);
  return all.sort((a, b) => b.updated - a.updated);
}

function storedConversation(id) {
  const conversation = parsed(local.getItem(kConversation + id), null);
  return isConversation(conversation) ? conversation : null;
}

function deleteConversation(id) {
  local.removeItem(kConversation + id);
}

// The oldest others make room. False: the browser has none.
function saveConversation(conversation) {
  const name = kConversation + conversation.id, text = JSON.stringify(conversation);
  const others = conversationNames().filter((other) => other !== name), length = (other) => local.getItem(other)?.length ?? 0;
  let room = kMostCharacters - text.length - sum(others.map(length)), left = others.length, oldest = null;
  const drop = () => {
    oldest ??= storedConversations().filter((c) => c.id !== conversation.id);
    if (oldest.length === 0) return false;
    const { id } = oldest.pop();
    room += length(kConversation + id);
    --left;
    deleteConversation(id);
    return true;
  };
  while ((room < 0 || left >= kMostConversations) && drop());
  while (!store(name, text)) if (!drop()) return false;
  return true;
}

// The messages from the first to `leaf`.
function path(conversation, leaf = conversation.leaf) {
  const messages = [];
  for (let id = leaf; id >= 0; id = conversation.messages[id].parent) messages.unshift(conversation.messages[id]);
  return messages;
}

function addMessage(conversation, message) {
  message.id = conversation.messages.length;
  conversation.messages.push(message);
  conversation.leaf = message.id;
  if (!conversation.title && message.role === "user") conversation.title = message.content.replace(/\s+/g, " ").trim().slice(0, 80);
  return message;
}

const siblings = (conversation, message) => conversation.messages.filter((m) => m.parent === message.parent && m.role === message.role);

// Shows `message` and the newest of what follows it.
function showBranch(conversation, message) {
  let leaf = message;
  for (;;) {
    const next = conversation.messages.filter((m) => m.parent === leaf.id).pop();
    if (!next) break;
    leaf = next;
  }
  conversation.leaf = leaf.id;
}

function download(name, value) {
  const url = URL.createObjectURL(new Blob([JSON.stringify(value, null, 1)], { type: "application/json" }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

