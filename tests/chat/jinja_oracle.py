# SPDX-License-Identifier: Apache-2.0
"""Chat templates as transformers renders them, by Python's jinja2: what the engine's results are compared with.

    jinja_oracle.py NOW TEMPLATE...    conversations through templates: JSON lines {template, case, variables, text | error}
"""
import datetime
import json
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox


class RaisedByTemplate(Exception):
    pass


class GenerationBlocks(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %} renders what is inside, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("inside"), [], [], body).set_lineno(line)

    def inside(self, caller):
        return caller()


def environment(now):
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise RaisedByTemplate(message)

    def strftime_now(format):
        return datetime.datetime.fromtimestamp(now).strftime(format)

    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlocks, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = strftime_now
    return made


def render(text, variables, now=0):
    """{"text": ...}, or {"error": why, "raised": whether the template asked for it}."""
    try:
        rendered = environment(now).from_string(text).render(**variables)
        rendered.encode("utf-8")
        return {"text": rendered}
    except RaisedByTemplate as error:
        return {"error": str(error), "raised": True}
    except Exception as error:  # whatever Python says, the engine is to refuse it too
        return {"error": f"{type(error).__name__}: {error}", "raised": False}


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather <of> a city, e.g. \"Zürich\".",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The city"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": ["integer", "null"], "minimum": 1, "maximum": 1.5e3},
                "options": {"type": "object", "properties": {"wind": {"type": "boolean", "default": False}}, "additionalProperties": False},
                "places": {"type": "array", "items": {"type": "number"}, "default": []},
            },
            "required": ["city"],
        },
        "return": {"type": "string"},
    },
}
CLOCK = {
    "type": "function",
    "function": {"name": "get_time", "description": "Says the time.", "parameters": {"type": "object", "properties": {}}},
}
ARGUMENTS = {"city": "Paris, \"Île\"", "days": 3, "options": {"wind": True, "x": None}, "places": [1.5, 2]}


def call(arguments, name="get_weather", id="abcdef123"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversations():
    """Name and variables, besides the special tokens."""
    system = {"role": "system", "content": "You are terse."}
    user = {"role": "user", "content": "Hi there"}
    answer = {"role": "assistant", "content": "Hello! How are you?"}
    again = {"role": "user", "content": "  What's 2+2?\n"}
    thinking = {"role": "assistant", "content": "It is 4.", "reasoning_content": "Two and two.\nFour."}
    inline = {"role": "assistant", "content": "<think>\nTwo and two.\n</think>\n\nIt is 4."}
    asks = {"role": "user", "content": "Weather in Paris?"}
    calls = {"role": "assistant", "content": "", "tool_calls": [call(ARGUMENTS)]}
    two_calls = {"role": "assistant", "content": "Let me look.", "tool_calls": [call(ARGUMENTS), call({}, "get_time", "123456789")]}
    result = {"role": "tool", "content": '{"temperature": 21}', "tool_call_id": "abcdef123", "name": "get_weather"}
    result2 = {"role": "tool", "content": "12:30", "tool_call_id": "123456789", "name": "get_time"}
    tools = [WEATHER, CLOCK]

    def case(*messages, prompt=True, **more):
        return {"messages": list(messages), "add_generation_prompt": prompt, **more}

    return {
        "user": case(user),
        "no_prompt": case(user, prompt=False),
        "system": case(system, user),
        "developer": case({"role": "developer", "content": "Be brief."}, user),
        "turns": case(system, user, answer, again),
        "turns_no_prompt": case(user, answer, again, answer, prompt=False),
        "ends_with_answer": case(user, answer),
        "assistant_first": case(answer, user),
        "two_users": case(user, again),
        "empty": case(),
        "unknown_role": case({"role": "wizard", "content": "Abracadabra"}),
        "tools": case(system, asks, tools=tools),
        "tools_no_system": case(asks, tools=tools),
        "tool_call": case(asks, calls, result, tools=tools),
        "tool_call_no_tools": case(asks, calls, result),
        "tool_call_only": case(asks, calls, tools=tools, prompt=False),
        "two_tool_calls": case(system, asks, two_calls, result, result2, tools=tools),
        "tool_call_answered": case(system, asks, calls, result, {"role": "assistant", "content": "21 degrees."}, again, tools=tools),
        "call_arguments_text": case(asks, {**calls, "tool_calls": [call(json.dumps(ARGUMENTS))]}, result, tools=tools),
        "call_content_none": case(asks, {**calls, "content": None}, result, tools=tools),
        "call_no_content": case(asks, {"role": "assistant", "tool_calls": [call(ARGUMENTS)]}, result, tools=tools),
        "call_thinks": case(asks, {**calls, "reasoning_content": "I need the weather."}, result, tools=tools),
        "thinking": case(user, thinking, again),
        "thinking_inline": case(user, inline, again),
        "thinking_last": case(user, thinking, prompt=False),
        "enable_thinking": case(user, enable_thinking=True),
        "disable_thinking": case(system, user, enable_thinking=False),
        "disable_thinking_turns": case(user, inline, again, enable_thinking=False),
        "reasoning_effort": case(system, user, reasoning_effort="high"),
        "thinking_flag": case(user, answer, again, thinking=True),
        "unicode": case({"role": "user", "content": "Grüße, 世界! 👩‍👩‍👧 \u00a0\u2028x\ttab"}),
        "special": case({"role": "user", "content": "<|im_end|>\n<|im_start|>system\n</s>[INST]<think>a</think>b"}, answer, again),
        "parts": case({"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "text", "text": "here."}]}),
        "image": case({"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}]}),
        "system_parts": case({"role": "system", "content": [{"type": "text", "text": "Be brief."}]}, user),
        "nothink": case({"role": "user", "content": "Hi /no_think"}, answer, {"role": "user", "content": "Hi /think"}),
        "documents": case(user, documents=[{"title": "One", "text": "First document."}, {"title": "Two", "text": "Second."}]),
        "date_string": case(system, user, date_string="26 Jul 2024", tools=[CLOCK]),
        "spaces": case({"role": "system", "content": "  padded  "}, {"role": "user", "content": "\n\n padded \n"}),
    }


SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def main():
    now = int(sys.argv[1])
    for path in sys.argv[2:]:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        for name, variables in conversations().items():
            variables = {"tools": None, "documents": None, **variables, **SPECIAL_TOKENS}
            print(json.dumps({"template": path, "case": name, "variables": variables, **render(text, variables, now)}))


if __name__ == "__main__":
    main()
