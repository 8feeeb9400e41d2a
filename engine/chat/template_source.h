// SPDX-License-Identifier: Apache-2.0
// Where checkpoints keep their chat templates.
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/chat/chat_format.h"
#include "engine/text/tokenizer.h"
#include "loaders/inventory/inventory.h"

namespace tally {

// GGUF: tokenizer.chat_template and tokenizer.chat_template.NAME. Hugging Face: chat_template.jinja and
// additional_chat_templates/NAME.jinja, else "chat_template" of tokenizer_config.json, a string or a list of {name, template}
// (as transformers reads them, https://huggingface.co/docs/transformers/chat_templating_writing). Empty: the checkpoint has none.
// Strings that end an answer: tally.chat.stop_strings (an array, a key of ours: GGUF has none), "stop_strings" of generation_config.json.
// kBadInput: a file that cannot be read or is no text, a key of another type, a template of more than 1 MiB.
Result<std::vector<ChatTemplateSource>> ReadChatTemplates(const Inventory& inventory, const Tokenizer* tokenizer);

}  // namespace tally
