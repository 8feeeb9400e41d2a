# SPDX-License-Identifier: Apache-2.0
"""Messages and tools of a chat, as OpenAI's API has them, for the library."""

from __future__ import annotations

import json
import uuid
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from ._errors import BadInput

Messages = Union[str, Sequence[Mapping[str, Any]]]

_IGNORED = {"refusal", "annotations", "audio", "function_call", "reasoning_details"}


def _text(content: Any, place: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, (list, tuple)):
        raise TypeError(f"{place}.content must be a str or a list of parts, not {content!r}")
    texts = []
    for i, part in enumerate(content):
        if not isinstance(part, Mapping) or part.get("type") not in ("text", "input_text", "output_text"):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise BadInput(f"{place}.content[{i}]: parts of type {kind!r} are not supported")
        if not isinstance(part.get("text"), str):
            raise BadInput(f"{place}.content[{i}] has no text")
        texts.append(part["text"])
    return "".join(texts)


def _call(call: Mapping[str, Any], place: str) -> Dict[str, str]:
    function = call.get("function", call) if isinstance(call, Mapping) else {}
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise BadInput(f"{place} has no function with a name")
    arguments = function.get("arguments", "{}")
    return {"id": call.get("id") or "", "name": function["name"],
            "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments)}


def messages_of(messages: Messages) -> List[Dict[str, Any]]:
    """Messages with the names of ChatMessage. A str is one of the user."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if isinstance(messages, Mapping):
        raise TypeError("messages must be a list of messages, not one")
    made = []
    for i, message in enumerate(messages):
        place = f"messages[{i}]"
        if not isinstance(message, Mapping):
            raise TypeError(f"{place} must be a dict, not {message!r}")
        if not isinstance(message.get("role"), str):
            raise BadInput(f"{place} has no role")
        row: Dict[str, Any] = {"role": message["role"], "content": _text(message.get("content"), place)}
        for name, value in message.items():
            if name in ("role", "content") or value is None or name in _IGNORED:
                continue
            if name in ("reasoning_content", "reasoning", "thinking"):
                row["reasoning"] = value
            elif name == "tool_calls":
                row["tool_calls"] = [_call(call, f"{place}.tool_calls[{k}]") for k, call in enumerate(value)]
            elif name in ("tool_call_id", "name"):
                row[name] = value
            else:
                raise BadInput(f"{place}: {name!r} is no field of a message")
        made.append(row)
    return made


def chat_options(tools: Optional[Sequence[Mapping[str, Any]]], tool_choice: Any, parallel_tool_calls: bool,
                 variables: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    """Options of a chat by the names of ChatRequest."""
    options: Dict[str, Any] = {}
    if variables:
        options["variables"] = {name: json.dumps(value) for name, value in variables.items()}
    if not tools:
        if tool_choice not in (None, "auto", "none"):
            raise BadInput("tool_choice: there are no tools")
        return options
    described = []
    for i, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise TypeError(f"tools[{i}] must be a dict, not {tool!r}")
        whole = dict(tool) if "function" in tool else {"type": "function", "function": dict(tool)}
        if not isinstance(whole["function"], Mapping) or not isinstance(whole["function"].get("name"), str):
            raise BadInput(f"tools[{i}] has no function with a name")
        described.append(whole)
    options["tools"] = [json.dumps(tool) for tool in described]
    options["strict"] = [t["function"]["name"] for t in described if t["function"].get("strict") is True]
    if not parallel_tool_calls:
        options["most_calls"] = 1
    if tool_choice == "none":
        options["most_calls"] = 0
    elif tool_choice == "required":
        options["must_call"] = True
    elif tool_choice not in (None, "auto"):
        function = tool_choice.get("function", tool_choice) if isinstance(tool_choice, Mapping) else {}
        name = tool_choice if isinstance(tool_choice, str) else function.get("name")
        if name not in [t["function"]["name"] for t in described]:
            raise BadInput(f"tool_choice: {name!r} is not among the tools")
        options["must_call"] = True
        options["callable"] = [name]
    return options


def schema_text(schema: Any) -> Optional[str]:
    """A JSON Schema as text: of a dict, a text, or a class of pydantic's."""
    if schema is None or isinstance(schema, str):
        return schema
    if hasattr(schema, "model_json_schema"):
        schema = schema.model_json_schema()
    if isinstance(schema, (Mapping, bool)):
        return json.dumps(schema)
    raise TypeError(f"schema must be a dict, a str or a pydantic model, not {schema!r}")


def new_ids() -> List[str]:
    """Beginnings of ids of calls."""
    return [uuid.uuid4().hex[:24] for _ in range(16)]
