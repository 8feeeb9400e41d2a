// SPDX-License-Identifier: Apache-2.0
// The dialog of settings, and the choice of a model.

const kFields = {
  system: "set-system", temperature: "set-temperature", max: "set-max", effort: "set-effort", theme: "set-theme", answer: "set-answer", schema: "set-schema",
  tools: "set-tools", key: "set-key", topP: "set-top-p", topK: "set-top-k", minP: "set-min-p", seed: "set-seed", repetition: "set-repetition",
  presence: "set-presence", frequency: "set-frequency",
};

function openSettings() {
  for (const [name, id] of Object.entries(kFields)) byId(id).value = settings[name];
  byId("tools-error").textContent = byId("schema-error").textContent = "";
  byId("sampling").open = [...byId("sampling").querySelectorAll("input")].some((field) => field.value !== "");
  showSchemaField();
  byId("settings").showModal();
}

const showSchemaField = () => (byId("schema-field").hidden = byId("set-answer").value !== "schema");

async function dropSchema(event) {
  const [file] = event.dataTransfer.files;
  if (!file) return;
  event.preventDefault();
  byId("set-schema").value = await file.text();
}

function closeSettings() {
  const tools = byId("set-tools").value.trim();
  if (tools && !Array.isArray(parsed(tools, null))) {
    byId("tools-error").textContent = "This is no JSON list.";
    return;
  }
  byId("schema-error").textContent = byId("set-answer").value === "schema" ? schemaError(byId("set-schema").value.trim()) : "";
  if (byId("schema-error").textContent) return byId("set-schema").focus();
  for (const [name, id] of Object.entries(kFields)) settings[name] = byId(id).value.trim();
  saveSettings();
  applyTheme();
  byId("settings").close();
  showHeld();
  showModel();
  followLive();
}

// Says by the message field what answers are held to.
function showHeld() {
  byId("held").hidden = !settings.answer;
  byId("held-by").textContent = settings.answer === "schema" ? "JSON by a schema" : "JSON";
}

function applyTheme() {
  if (settings.theme) document.documentElement.dataset.theme = settings.theme;
  else delete document.documentElement.dataset.theme;
}

// --- the model

let models = [], model = "";  // what is served, and which of them is asked

// Asks for their names and takes the one that was chosen, or else the first.
async function findModels(signal) {
  models = await modelNames(signal);
  model = models.includes(settings.model) ? settings.model : (models[0] ?? "");
}

// A server of one model has its name here, others a choice.
async function showModel() {
  let said = "";
  try {
    await findModels();
    said = model;
  } catch (error) {
    models = [];
    said = error instanceof TypeError ? "The server does not answer." : error.message;
  }
  byId("model").textContent = said;
  byId("model").hidden = models.length > 1;
  byId("models").hidden = models.length <= 1;
  byId("models").replaceChildren(...models.map((name) => make("option", { textContent: name, selected: name === model })));
}

function chooseModel() {
  settings.model = model = byId("models").value;
  byId("model").textContent = model;
  saveSettings();
}

