// SPDX-License-Identifier: Apache-2.0
// usage: node logits.mjs ID,ID... FILE.gguf...
// Writes llama.cpp's logits after each token to FILE.gguf.logits, float32 [ids, vocabulary], or why there are none to FILE.gguf.error. The
// prompt is one batch, K and V are stored in f32. node-llama-cpp brings the library prebuilt.
import {writeFileSync} from "node:fs";
import {getLlama, LlamaLogLevel} from "node-llama-cpp";

const [list, ...files] = process.argv.slice(2);
const ids = list.split(",").map(Number);
let said = [];
const llama = await getLlama({
  gpu: false, build: "never", skipDownload: true, logLevel: LlamaLogLevel.error, logger: (level, message) => said.push(message.trim())
});

async function logitsOf(file) {
  const model = await llama.loadModel({modelPath: file, useMmap: false});
  const context = await model.createContext({
    contextSize: ids.length + 8, batchSize: ids.length, threads: 1, flashAttention: false, swaFullCache: true,
    experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32"
  });
  const wanted = {generateNext: {logits: true, options: {temperature: 0}}};
  const rows = await context.getSequence().controlledEvaluate(ids.map((id) => [id, wanted]));
  const vocabulary = rows[0].next.logits.size;
  const logits = new Float32Array(ids.length * vocabulary);
  rows.forEach((row, i) => row.next.logits.forEach((logit, token) => logits[i * vocabulary + token] = logit));
  await model.dispose();
  return logits;
}

for (const file of files) {
  said = [];
  try {
    writeFileSync(file + ".logits", await logitsOf(file));
  } catch (error) {
    await new Promise((resolve) => setTimeout(resolve, 100));  // what the library says comes by the event loop
    writeFileSync(file + ".error", [...said, error.message].join("\n"));
  }
}
process.exit(0);  // the library's own threads would keep the process alive
