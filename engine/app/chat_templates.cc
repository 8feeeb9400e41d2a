// SPDX-License-Identifier: Apache-2.0
#include "engine/app/chat_templates.h"

#include <algorithm>
#include <iterator>

namespace tally::app {
namespace {

// Formats as their authors publish them: roles, marks and white space, without tools.
constexpr NamedTemplate kTemplates[] = {
    // Rendered natively: the marks say which format it is (https://cookbook.openai.com/articles/openai-harmony).
    {"harmony", "{#- <|start|>role<|channel|>channel<|message|>content<|end|> -#}"},
    // https://github.com/openai/openai-python/blob/release-v0.28.0/chatml.md
    {"chatml", R"({%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}
)"},
    // https://www.llama.com/docs/model-cards-and-prompt-formats/meta-llama-3
    {"llama3", R"({{- bos_token | default('') -}}
{%- for message in messages -%}
{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif -%}
)"},
    // https://ai.google.dev/gemma/docs/core/prompt-structure: no system role, its text goes before the first message.
    {"gemma", R"({{- bos_token | default('') -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = message.content | trim + '\n\n' -%}
{%- else -%}
{{ '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' }}
{{- ns.system + message.content | trim }}{{ '<end_of_turn>\n' }}
{%- set ns.system = '' -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%}
)"},
    // https://docs.mistral.ai/guides/tokenization, version 1: no system role either.
    {"mistral", R"({{- bos_token | default('') -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = message.content + '\n\n' -%}
{%- elif message.role == 'assistant' -%}
{{ ' ' + message.content | trim + (eos_token | default('</s>')) }}
{%- else -%}
{{ ' [INST] ' + ns.system }}{{ message.content + ' [/INST]' }}
{%- set ns.system = '' -%}
{%- endif -%}
{%- endfor -%}
)"},
    // https://huggingface.co/HuggingFaceH4/zephyr-7b-beta
    {"zephyr", R"({%- for message in messages -%}
{{ '<|' + message.role + '|>\n' + message.content + (eos_token | default('</s>')) + '\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>\n' }}{%- endif -%}
)"},
};

}  // namespace

std::span<const NamedTemplate> ChatTemplates() { return kTemplates; }

const NamedTemplate* FindChatTemplate(std::string_view name) {
  const auto* const found = std::ranges::find(kTemplates, name, &NamedTemplate::name);
  return found != std::end(kTemplates) ? found : nullptr;
}

std::string ChatTemplateNames() {
  std::string names;
  for (const NamedTemplate& t : kTemplates) names += (names.empty() ? "" : ", ") + std::string(t.name);
  return names;
}

}  // namespace tally::app
