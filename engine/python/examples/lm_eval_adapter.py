# SPDX-License-Identifier: Apache-2.0
"""lm-evaluation-harness on a model of Tally.

With the harness installed, import this file and ask for the model "tally":

    import lm_eval, lm_eval_adapter
    lm_eval.simple_evaluate(model="tally", model_args="pretrained=model.gguf,sequences=8", tasks=["hellaswag"])

Without it the class works alone: requests need nothing but ``args``. Prompts are cut as the harness's own class for transformers does.
"""

import tally

try:
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ImportError:
    LM = object

    def register_model(*_names):
        return lambda cls: cls


@register_model("tally")
class TallyLM(LM):
    def __init__(self, pretrained="demo", *, max_length=None, max_gen_toks=256, batch_size=None, max_batch_size=None, device=None,
                 **options):
        """pretrained: what tally.load takes, or a tally.Model. options: of tally.load. Batch sizes and device are not used: the engine
        fills its steps by itself, ``sequences`` says how many generations run side by side."""
        super().__init__()
        self.model = pretrained if isinstance(pretrained, tally.Model) else tally.load(pretrained, **options)
        self.tokenizer = self.model.tokenizer
        self.max_length = max_length or self.model.info["context"]
        self.max_gen_toks = max_gen_toks
        first = self.tokenizer.bos_token_id
        self.prefix_token_id = self.tokenizer.eos_token_id if first is None else first  # what comes before an empty context

    def tok_encode(self, text, add_special_tokens=True):
        """Special tokens that are spelled out become tokens. BOS is not added to a text that begins with it, as a rendered chat may."""
        ids = self.tokenizer.encode(text, False, parse_special=True)
        if not add_special_tokens or ids[:1] == [self.prefix_token_id]:
            return ids
        return self.tokenizer.encode(text, parse_special=True)

    def _pair(self, context, continuation):
        """Ids of both. Blanks at the end of the context belong to the continuation."""
        if not context:
            ids = self.tok_encode(continuation, add_special_tokens=False)
            return ([self.prefix_token_id], ids) if ids[:1] != [self.prefix_token_id] else (ids[:1], ids[1:])
        kept = context.rstrip()
        before = self.tok_encode(kept) or [self.prefix_token_id]
        return before, self.tok_encode(kept + context[len(kept):] + continuation)[len(self.tok_encode(kept)):]

    def _score(self, before, ids):
        """(ln p of the ids, are they what greedy decoding gives). The last of them is predicted and not run, so one more fits."""
        if not ids:
            raise ValueError("a continuation has no tokens of its own: it is empty, or one token with the end of its context")
        if len(ids) > self.max_length:
            raise ValueError(f"a continuation of {len(ids)} tokens is longer than the context, {self.max_length}")
        before = before[max(0, len(before) + len(ids) - self.max_length - 1):]
        return self.model.loglikelihood(before, ids)

    def loglikelihood(self, requests):
        return [self._done("loglikelihood", r, self._score(*self._pair(*r.args))) for r in requests]

    def loglikelihood_rolling(self, requests):
        """Each token is predicted once. A text that is too long is cut into windows; the last one has as much context as fits."""
        sums = []
        for request in requests:
            ids, n, total = self.tok_encode(request.args[0], add_special_tokens=False), self.max_length, 0.0
            whole = [self.prefix_token_id] + ids
            for begin in range(0, len(ids), n):
                end = min(begin + n, len(ids))
                total += self._score(whole[max(0, end - n):begin + 1], ids[begin:end])[0]
            sums.append(self._done("loglikelihood_rolling", request, total))
        return sums

    def generate_until(self, requests):
        """All requests run side by side. Those that are sampled have seeds of their own, so that repeats differ."""
        streams = [self._start(i, *request.args) for i, request in enumerate(requests)]
        return [self._done("generate_until", r, str(s.wait())) for r, s in zip(requests, streams)]

    def _start(self, seed, context, given):
        until, tokens = given.get("until") or [], given.get("max_gen_toks", self.max_gen_toks)
        if tokens >= self.max_length:
            raise ValueError(f"max_gen_toks={tokens} leaves no room for a prompt: the context is {self.max_length}")
        prompt = (self.tok_encode(context) or [self.prefix_token_id])[tokens - self.max_length:]
        sampled = given.get("do_sample", (given.get("temperature") or 0) > 0)
        return self.model.stream(prompt, max_tokens=tokens, stop=[until] if isinstance(until, str) else list(until), seed=seed,
                                 temperature=given.get("temperature", 1.0) if sampled else 0.0, top_k=given.get("top_k", 0),
                                 top_p=given.get("top_p", 1.0), min_p=given.get("min_p", 0.0))

    def _done(self, kind, request, result):
        if hasattr(self, "cache_hook"):
            self.cache_hook.add_partial(kind, request.args, result)
        return result

    # For --apply_chat_template.
    def apply_chat_template(self, chat_history, add_generation_prompt=True):
        return self.tokenizer.apply_chat_template(chat_history, add_generation_prompt=add_generation_prompt,
                                                  continue_final_message=not add_generation_prompt, tokenize=False)

    @property
    def tokenizer_name(self):
        return f"{self.model.name}, {self.tokenizer.description}"
