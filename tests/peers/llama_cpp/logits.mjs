// SPDX-License-Identifier: Apache-2.0
// usage: node logits.mjs FILE.gguf ID,ID... OUT
// Writes llama.cpp's logits after each token, float32 [ids, vocabulary], to OUT. The prompt is one batch, K and V are stored in f32.
// node-llama-cpp brings the library prebuilt.
import {writeFileSync} from "node:fs";
import {getLlama, LlamaLogLevel} from "node-llama-cpp";

const [file, list, out] = process.argv.slice(2);
const ids = list.split(",").map(Number);
const llama = await getLlama({
  gpu: false, build: "never", skipDownload: true, logLevel: LlamaLogLevel.error, logger: (level, message) => console.error(message.trim())
});
try {
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
  writeFileSync(out, logits);
  process.exit(0);  // the library's own threads would keep the process alive
} catch (error) {
  console.error(error.message);
  setTimeout(() => process.exit(1), 100);  // what the library says comes by the event loop
}
