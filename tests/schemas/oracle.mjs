// SPDX-License-Identifier: Apache-2.0
// What ajv says of schemas and documents that the machine has read: each answer is JSON and valid, each document accepted if and only if
// it is valid.
// usage: node oracle.mjs FILE    a line of it: {schema, answers: [text], documents: [[text, accepted]]}
import {readFileSync} from "node:fs";
import Ajv from "ajv";
import Ajv2020 from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

const options = {strict: false, validateSchema: false, logger: false};
const checkers = [new Ajv.default(options), new Ajv2020.default(options)];
for (const ajv of checkers) {
  addFormats.default(ajv);
  // ajv divides doubles, for which 19.99 is no multiple of 0.01. This one does it in decimals.
  const places = (x) => (x.toString().split(".")[1] ?? "").length;
  ajv.removeKeyword("multipleOf");
  ajv.addKeyword({keyword: "multipleOf", type: "number", validate: (of, value) => {
    const [x, y] = [value, of].map((n) => BigInt(n.toFixed(Math.max(places(of), places(value))).replace(".", "")));
    return x % y === 0n;
  }});
}

// In draft 7, what stands beside $ref says nothing (Core, section 8.3). ajv goes by it, and by the type even where it is told not to.
function alone(part) {
  if (part === null || typeof part !== "object") return part;
  if (Array.isArray(part)) return part.map(alone);
  const kept = Object.entries(part).filter(([key]) => typeof part.$ref !== "string" || ["$ref", "definitions"].includes(key));
  return Object.fromEntries(kept.map(([key, value]) => [key, alone(value)]));
}

function checker(schema) {
  return schema.$schema.includes("draft-07") ? checkers[0].compile(alone(schema)) : checkers[1].compile(schema);
}

const differences = [];
const counts = {schemas: 0, answers: 0, valid: 0, invalid: 0, broken: 0};
for (const line of readFileSync(process.argv[2], "utf8").split("\n").filter(Boolean)) {
  const {schema, answers, documents} = JSON.parse(line);
  const compiled = checker(schema);
  const valid = (document) => {
    try {
      const holds = compiled(document);
      valid.errors = compiled.errors;
      return holds;
    } catch (error) {  // of ajv's own code, where it notes which members were evaluated
      if (!(error instanceof TypeError || error instanceof ReferenceError)) throw error;
      ++counts.broken;
      return null;
    }
  };
  ++counts.schemas;
  const known = (text) => !/\p{Cn}/u.test(text);  // to this version of Unicode
  for (const text of answers.filter(known)) {
    ++counts.answers;
    if (valid(JSON.parse(text)) === false) differences.push(["drawn and invalid", schema, text, valid.errors[0]]);
  }
  for (const [text, accepted] of documents.filter(([text]) => known(text))) {
    const holds = valid(JSON.parse(text));
    if (holds === null) continue;
    ++counts[holds ? "valid" : "invalid"];
    if (holds !== accepted) differences.push([accepted ? "accepted and invalid" : "valid and not accepted", schema, text,
      valid.errors?.[0]]);
  }
}
const shown = new Set();  // one difference of a schema
for (const [what, schema, text, error] of differences) {
  if (shown.has(schema) || shown.size === 20) continue;
  shown.add(schema);
  console.log(`${what}: ${text}\n  ${JSON.stringify(schema)}\n  ${error == null ? "" : `${error.schemaPath}: ${error.message}`}`);
}
console.log(`${JSON.stringify(counts)}, ${differences.length} differences`);
process.exit(differences.length === 0 && counts.broken < counts.schemas / 100 ? 0 : 1);
