// SPDX-License-Identifier: Apache-2.0
// Schemas of usual tools as zod and openai's helpers make them, and arguments that are to be taken and refused.
// usage: node tools.mjs FILE    writes there [{name, schema, good: [value], bad: [value]}]
import assert from "node:assert/strict";
import {writeFileSync} from "node:fs";
import Ajv from "ajv";
import Ajv2020 from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import {zodFunction, zodResponseFormat, zodTextFormat} from "openai/helpers/zod";
import {z as z3} from "zod/v3";
import {z} from "zod";

const tools = [];
const checkers = [new Ajv.default({strict: false}), new Ajv2020.default({strict: false})];
checkers.forEach((ajv) => addFormats.default(ajv));
function add(name, schema, good, bad) {
  const valid = checkers[schema.$schema?.includes("draft-07") ? 0 : 1].compile(schema);
  for (const value of good) assert.ok(valid(value), `${name}: ${JSON.stringify([value, valid.errors, schema])}`);
  for (const value of bad) assert.ok(!valid(value), `${name}: ${JSON.stringify([value, schema])}`);
  tools.push({name, schema, good, bad});
}
// By zod itself, 2020-12 and draft 7.
function plain(name, type, good, bad, options = {}) {
  add(name, z.toJSONSchema(type, options), good, bad);
  add(`${name}, draft 7`, z.toJSONSchema(type, {...options, target: "draft-7"}), good, bad);
}
// As openai's helpers send it: closed, with all members required.
const answer = (name, type, good, bad) => add(name, zodResponseFormat(type, "x").json_schema.schema, good, bad);
const call = (name, type, good, bad) => add(name, zodFunction({name: "x", parameters: type}).function.parameters, good, bad);

plain("weather", z.object({city: z.string().min(1), unit: z.enum(["celsius", "fahrenheit"]).default("celsius"),
  days: z.int().min(1).max(14).optional()}),
  [{city: "Rome"}, {city: "Rome", unit: "celsius", days: 14}], [{city: ""}, {city: "Rome", days: 15}, {city: "Rome", days: 1.5}],
    {io: "input"});
plain("search", z.object({query: z.string(), filters: z.record(z.string(), z.array(z.string())).optional(),
  page: z.number().int().positive()}),
  [{query: "a", page: 1}, {query: "a", filters: {tag: ["x"]}, page: 2}], [{query: "a", page: 0}, {query: "a", filters: {tag: "x"},
    page: 1}]);
plain("calendar", z.object({
  title: z.string().max(80), start: z.iso.datetime({offset: true}), day: z.iso.date(), length: z.iso.duration(),
  attendees: z.array(z.email()).max(20),
}), [{title: "a", start: "2024-02-29T10:00:00+01:00", day: "2024-02-29", length: "PT15M", attendees: ["a@b.co"]}],
[{title: "a", start: "2024-02-29", day: "2024-02-29", length: "PT15M", attendees: []},
  {title: "a", start: "2024-02-29T10:00:00Z", day: "2023-02-29", length: "PT15M", attendees: []},
  {title: "a", start: "2024-02-29T10:00:00Z", day: "2024-02-29", length: "15", attendees: ["a"]}]);
plain("addresses", z.object({id: z.uuid(), v4: z.ipv4(), v6: z.ipv6().optional(), url: z.url(),
  slug: z.string().regex(/^[a-z0-9]+(?:-[a-z0-9]+)*$/), color: z.string().length(7).startsWith("#")}),
  [{id: "f81d4fae-7dec-41d0-a765-00a0c91e6bf6", v4: "10.0.0.1", v6: "::1", url: "https://a.b/c", slug: "a-b", color: "#00ff00"}],
  [{id: "f81d4fae", v4: "10.0.0.1", url: "https://a.b/c", slug: "a-b", color: "#00ff00"},
    {id: "f81d4fae-7dec-41d0-a765-00a0c91e6bf6", v4: "10.0.0.256", url: "https://a.b/c", slug: "a-b", color: "#00ff00"},
    {id: "f81d4fae-7dec-41d0-a765-00a0c91e6bf6", v4: "10.0.0.1", url: "https://a.b/c", slug: "a--b", color: "#00ff00"},
    {id: "f81d4fae-7dec-41d0-a765-00a0c91e6bf6", v4: "10.0.0.1", url: "https://a.b/c", slug: "a", color: "000ff00"}]);
const Comment = z.object({author: z.string(), text: z.string(), get replies() { return z.array(Comment); }});
plain("comments", Comment, [{author: "a", text: "b", replies: [{author: "c", text: "d", replies: []}]}], [{author: "a", text: "b",
  replies: [{author: "c"}]}]);
const Shape = z.discriminatedUnion("kind", [
  z.object({kind: z.literal("circle"), radius: z.number().positive()}),
  z.object({kind: z.literal("square"), side: z.number().positive()}),
  z.object({kind: z.literal(["line", "ray"]), points: z.tuple([z.number(), z.number()])}),
]);
plain("shapes", z.object({shapes: z.array(Shape).nonempty()}),
  [{shapes: [{kind: "circle", radius: 0.5}, {kind: "ray", points: [1, 2]}]}], [{shapes: []}, {shapes: [{kind: "circle", side: 1}]},
    {shapes: [{kind: "line", points: [1, "2"]}]}]);
plain("form", z.strictObject({
  text: z.string().trim().toLowerCase(), count: z.string().transform(Number).pipe(z.number()), flags: z.partialRecord(z.enum(["a", "b"]),
    z.boolean()),
  step: z.number().multipleOf(0.25), any: z.unknown(), maybe: z.string().nullish(), both: z.intersection(z.object({x: z.number()}),
    z.object({y: z.number()})),
}), [{text: "a", count: "1", flags: {b: true}, step: 0.75, any: [1], maybe: null, both: {x: 1, y: 2}}],
[{text: "a", count: 1, flags: {}, step: 0.75, any: 1, both: {x: 1, y: 2}}, {text: "a", count: "1", flags: {c: true}, step: 1, any: 1,
  both: {x: 1, y: 2}},
  {text: "a", count: "1", flags: {}, step: 0.3, any: 1, both: {x: 1, y: 2}}, {text: "a", count: "1", flags: {}, step: 1, any: 1,
    both: {x: 1}}], {io: "input"});
plain("settings", z.object({theme: z.enum({Dark: "dark", Light: "light"}), volume: z.number().min(0).max(1), level: z.union([z.literal(1),
  z.literal(2), z.literal(3)]), tags: z.array(z.enum(["x", "y"])).min(1).max(2)}).catchall(z.string()),
  [{theme: "dark", volume: 0.5, level: 2, tags: ["x"], more: "z"}], [{theme: "blue", volume: 0.5, level: 2, tags: ["x"]}, {theme: "dark",
    volume: 2, level: 2, tags: ["x"]}, {theme: "dark", volume: 1, level: 4, tags: ["x"]}, {theme: "dark", volume: 1, level: 1, tags: [],
    more: 1}]);

// Of whose times no string has the format, by RFC 3339: they are without a zone. ajv goes by the pattern.
checkers[1].addFormat("time", true);
add("local time", z.toJSONSchema(z.object({at: z.iso.time()})), [{at: "10:30"}, {at: "10:30:15.5"}], [{at: "25:30"}]);

call("translate", z.object({text: z.string(), from: z.enum(["de", "en", "fr"]).nullable(), to: z.enum(["de", "en", "fr"]),
  formal: z.boolean()}),
  [{text: "a", from: null, to: "en", formal: true}], [{text: "a", from: "xx", to: "en", formal: true}, {text: "a", to: "en",
    formal: true}]);
call("todo", z.object({todos: z.array(z.object({content: z.string().min(1), status: z.enum(["pending", "in_progress", "completed"]),
  id: z.string()})).max(50)}),
  [{todos: [{content: "a", status: "pending", id: "1"}]}, {todos: []}], [{todos: [{content: "", status: "pending", id: "1"}]},
    {todos: [{content: "a", status: "done", id: "1"}]}]);
plain("image", z.object({prompt: z.string().max(4000), size: z.templateLiteral([z.int().positive(), "x", z.int().positive()]),
  seed: z.uint32().optional(), style: z.literal(["vivid", "natural", null])}),
  [{prompt: "a", size: "10x20", seed: 4294967295, style: null}, {prompt: "", size: "1x1", style: "vivid"}], [{prompt: "a",
    size: "10 x 20", style: null}, {prompt: "a", size: "1x1", style: "x"}, {prompt: "a", size: "1x1", seed: -1, style: null}]);

const Step = z.object({explanation: z.string(), output: z.string()});
answer("math", z.object({steps: z.array(Step), final_answer: z.string()}), [{steps: [{explanation: "a", output: "b"}],
  final_answer: "c"}], [{steps: []}, {steps: [{}], final_answer: "c"}]);
const Ui = z.object({
  type: z.enum(["div", "button", "form"]), label: z.string(), children: z.array(z.lazy(() => Ui)),
    attributes: z.array(z.object({name: z.string(), value: z.string()})),
});
answer("interface", Ui, [{type: "div", label: "", children: [{type: "button", label: "x", children: [], attributes: [{name: "a",
  value: "b"}]}], attributes: []}], [{type: "span", label: "", children: [], attributes: []}]);
answer("moderation", z.object({category: z.enum(["violence", "none"]).nullable(), explanation: z.string().nullable(),
  score: z.number().min(0).max(1)}),
  [{category: null, explanation: "x", score: 0.5}], [{category: "x", explanation: null, score: 0}, {category: null, score: 0}]);
add("text format", zodTextFormat(z.object({name: z.string(), ages: z.array(z.number().int())}), "x").schema, [{name: "a", ages: [1]}],
  [{name: "a", ages: [1.5]}, {name: "a", ages: [1], more: 1}]);
call("query", z.object({
  table: z.enum(["orders", "customers"]), columns: z.array(z.string()), conditions: z.array(z.object({
    column: z.string(), operator: z.enum(["=", ">", "<", "!="]), value: z.union([z.string(), z.number(), z.object({column: z.string()})]),
  })), order_by: z.enum(["asc", "desc"]),
}), [{table: "orders", columns: ["id"], conditions: [{column: "a", operator: "=", value: {column: "b"}}, {column: "a", operator: ">",
  value: 1}], order_by: "asc"}], [{table: "x", columns: [], conditions: [], order_by: "asc"}]);
// zod 3, which openai's helpers turn into draft 7.
const Old = z3.object({
  id: z3.string().uuid(), when: z3.string().datetime(), who: z3.string().email(), tags: z3.array(z3.string()).max(3),
    note: z3.string().min(1).nullable(),
  kind: z3.discriminatedUnion("t", [z3.object({t: z3.literal("a"), n: z3.number().int().gte(1)}), z3.object({t: z3.literal("b"),
    s: z3.string().regex(/^\d+$/)})]),
});
const old = {id: "f81d4fae-7dec-41d0-a765-00a0c91e6bf6", when: "2024-02-29T10:00:00Z", who: "a@b.co", tags: ["x"], note: null,
  kind: {t: "b", s: "12"}};
answer("zod 3", Old, [old], [{...old, kind: {t: "b", s: "x"}}, {...old, kind: {t: "a", n: 0}}, {...old, note: 1}, {...old, tags: ["", "",
  "", ""]}]);
const OldTree = z3.object({value: z3.number(), children: z3.array(z3.lazy(() => OldTree))});
call("zod 3, a tree", OldTree, [{value: 1, children: [{value: 2, children: []}]}], [{value: 1, children: [{}]}]);
call("zod 3, a shared part", z3.object({from: z3.object({x: z3.number()}), to: z3.object({x: z3.number()}).nullable(),
  pair: z3.tuple([z3.string(), z3.number()])}),
  [{from: {x: 1}, to: null, pair: ["a", 1]}], [{from: {}, to: null, pair: ["a", 1]}, {from: {x: 1}, to: null, pair: ["a"]}]);

writeFileSync(process.argv[2], JSON.stringify(tools));
