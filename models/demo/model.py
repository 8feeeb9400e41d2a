# SPDX-License-Identifier: Apache-2.0
"""The gpt-oss architecture in torch, batched for training on CPU, and its MXFP4 format.

Weights are a dict under the Hugging Face names; the experts stand as float [E, rows, columns] under "...experts.gate_up_proj"
(first all gate rows, then all up rows; the export interleaves them) and "...experts.down_proj".
"""

import math

import torch
import torch.nn.functional as F

CONFIG = {
    "architectures": ["GptOssForCausalLM"], "attention_bias": True, "attention_dropout": 0.0, "bos_token_id": 1023,
    "eos_token_id": 1023, "experts_per_token": 2, "head_dim": 32, "hidden_act": "silu", "hidden_size": 160,
    "initial_context_length": 256, "initializer_range": 0.02, "intermediate_size": 160,
    "layer_types": ["sliding_attention", "full_attention"] * 3, "max_position_embeddings": 1024, "model_type": "gpt_oss",
    "num_attention_heads": 6, "num_experts_per_tok": 2, "num_hidden_layers": 6, "num_key_value_heads": 2, "num_local_experts": 8,
    "output_router_logits": False, "pad_token_id": 1023,
    "quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                       "model.embed_tokens", "lm_head"], "quant_method": "mxfp4"},
    "rms_norm_eps": 1e-05,
    "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 4.0, "original_max_position_embeddings": 256,
                     "rope_type": "yarn", "truncate": False},
    "rope_theta": 10000, "router_aux_loss_coef": 0.01, "sliding_window": 64, "swiglu_limit": 7.0, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": 1024,
}


def shapes(c):
    """Name, shape, standard deviation at the start (None: ones)."""
    h, d, hq, hk = c["hidden_size"], c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
    e, x = c["num_local_experts"], c["intermediate_size"]
    out = (2 * c["num_hidden_layers"]) ** -0.5  # what is added to the residual starts small
    yield "model.embed_tokens.weight", (c["vocab_size"], h), 0.5
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", (h,), None
        yield p + "post_attention_layernorm.weight", (h,), None
        for name, rows, columns, scale in (("q", hq * d, h, 1), ("k", hk * d, h, 1), ("v", hk * d, h, 1), ("o", h, hq * d, out)):
            yield f"{p}self_attn.{name}_proj.weight", (rows, columns), scale * columns ** -0.5
            yield f"{p}self_attn.{name}_proj.bias", (rows,), 0
        yield p + "self_attn.sinks", (hq,), 0
        yield p + "mlp.router.weight", (e, h), h ** -0.5
        yield p + "mlp.router.bias", (e,), 0
        yield p + "mlp.experts.gate_up_proj", (e, 2 * x, h), h ** -0.5
        yield p + "mlp.experts.gate_up_proj_bias", (e, 2 * x), 0
        yield p + "mlp.experts.down_proj", (e, h, x), out * x ** -0.5
        yield p + "mlp.experts.down_proj_bias", (e, h), 0
    yield "model.norm.weight", (h,), None
    yield "lm_head.weight", (c["vocab_size"], h), 0.5 * h ** -0.5


def new_weights(c):
    return {name: (torch.ones(shape) if std is None else torch.randn(shape) * std).requires_grad_() for name, shape, std in shapes(c)}


def is_expert(name):
    return name.endswith(("gate_up_proj", "down_proj"))


# MXFP4 (OCP microscaling formats): 32 numbers along a row share the scale 2^e; each is a sign and one of eight magnitudes.

MAGNITUDES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
_HALFWAY = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5])


def mxfp4(w):
    """[.., K] -> codes uint8 [.., K/32, 32] (bit 3 the sign), exponents int32 [.., K/32].

    The exponent is the least with which the largest magnitude is at most 7: no error above one step of the grid."""
    blocks = w.detach().reshape(*w.shape[:-1], -1, 32)
    largest = blocks.abs().amax(-1)
    e = torch.ceil(torch.log2(largest.clamp(min=2.0 ** -100) / 7)).int()
    x = torch.ldexp(blocks, -e[..., None])
    return torch.bucketize(x.abs(), _HALFWAY).byte() | (torch.signbit(x).byte() << 3), e


def from_mxfp4(codes, e):
    x = MAGNITUDES[(codes & 7).long()] * (1 - 2 * (codes >> 3).float())
    return torch.ldexp(x, e[..., None]).flatten(-2)


def rounded(w):
    """w as MXFP4 will hold it; the gradient passes straight through."""
    return w + (from_mxfp4(*mxfp4(w)) - w).detach()


# The layers.

def rope(c, n):
    """cos, sin [n, head_dim / 2] of YaRN (Peng et al. 2023), as gpt-oss publishes it: bounds not rounded."""
    s, d, base = c["rope_scaling"], c["head_dim"], c["rope_theta"]
    inverse = base ** -(torch.arange(0, d, 2, dtype=torch.float64) / d)
    low, high = (d / 2 * math.log(s["original_max_position_embeddings"] / (beta * 2 * math.pi)) / math.log(base)
                 for beta in (s["beta_fast"], s["beta_slow"]))
    ramp = ((torch.arange(d // 2) - max(low, 0)) / (min(high, d - 1) - max(low, 0))).clamp(0, 1)
    angle = torch.arange(n)[:, None] * (inverse * (1 - ramp) + inverse / s["factor"] * ramp)
    scale = 0.1 * math.log(s["factor"]) + 1
    return (angle.cos() * scale).float(), (angle.sin() * scale).float()


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def norm(x, w, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w


class Attend(torch.autograd.Function):
    """softmax(q k^T + mask, with one more logit, the sink, whose value is zero) v.

    q [N, blocks, G, Tq, D], scaled; k, v [N, blocks, Tk, D]; sink [N, 1, G, 1, 1]; mask [blocks or 1, 1, Tq, Tk]."""

    @staticmethod
    def forward(ctx, q, k, v, sink, mask):
        s = torch.matmul(q.flatten(2, 3), k.transpose(-1, -2)).view(*q.shape[:4], -1)
        s += mask
        m = torch.maximum(s.amax(-1, keepdim=True), sink)
        s.sub_(m).exp_()
        at_sink = (sink - m).exp_()
        total = s.sum(-1, keepdim=True).add_(at_sink)
        s.div_(total)
        o = torch.matmul(s.flatten(2, 3), v).view_as(q)
        ctx.save_for_backward(q, k, v, s, o, at_sink.div_(total))
        return o

    @staticmethod
    def backward(ctx, do):
        q, k, v, s, o, at_sink = ctx.saved_tensors
        mean = (do * o).sum(-1, keepdim=True)
        dv = torch.matmul(s.flatten(2, 3).transpose(-1, -2), do.flatten(2, 3))
        ds = torch.matmul(do.flatten(2, 3), v.transpose(-1, -2)).view_as(s).sub_(mean).mul_(s).flatten(2, 3)
        dq = torch.matmul(ds, k).view_as(q)
        dk = torch.matmul(ds.transpose(-1, -2), q.flatten(2, 3))
        return dq, dk, dv, -(at_sink * mean).sum((1, 3), keepdim=True), None


def attention(c, w, p, x, window, table):
    b, t, _ = x.shape
    hq, hk, d = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]

    def project(name, heads):
        y = x.flatten(0, 1) @ w[f"{p}{name}_proj.weight"].t() + w[f"{p}{name}_proj.bias"]
        return y.view(b, t, heads, d).transpose(1, 2)

    cos, sin = table
    q, k, v = rotate(project("q", hq), cos, sin) * d ** -0.5, rotate(project("k", hk), cos, sin), project("v", hk)
    n, group = b * hk, hq // hk  # query head h uses key-value head h / group
    sink = w[p + "sinks"].view(1, hk, group).expand(b, hk, group).reshape(n, 1, group, 1, 1)
    if window and t > window and t % window == 0:  # each block of queries sees its own keys and the block before
        blocks, size = t // window, window
        q = q.reshape(n, group, blocks, size, d).transpose(1, 2)

        def with_block_before(y):
            y = y.reshape(n, blocks, size, d)
            return torch.cat((F.pad(y, (0, 0, 0, 0, 1, 0))[:, :-1], y), 2)

        k, v = with_block_before(k), with_block_before(v)
        i, j = torch.arange(size)[:, None], torch.arange(-size, size)
        seen = ((i >= j) & (i - j < window)).expand(blocks, -1, -1).clone()
        seen[0] &= j >= 0
    else:
        q, k, v = q.reshape(n, 1, group, t, d), k.reshape(n, 1, t, d), v.reshape(n, 1, t, d)
        i, j = torch.arange(t)[:, None], torch.arange(t)
        seen = ((i >= j) & (i - j < (window or t)))[None]
    mask = torch.zeros(seen.shape).masked_fill_(~seen, -math.inf)[:, None]
    o = Attend.apply(q.contiguous(), k, v, sink, mask)  # [n, blocks, group, size, d]
    o = o.transpose(1, 2).reshape(b, hq, t, d).transpose(1, 2).reshape(b * t, hq * d)
    return (o @ w[p + "o_proj.weight"].t() + w[p + "o_proj.bias"]).view(b, t, -1)


class Permute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, order, inverse):
        ctx.inverse = inverse
        return x[order]

    @staticmethod
    def backward(ctx, g):
        return g[ctx.inverse], None, None


class GroupedLinear(torch.autograd.Function):
    """Rows of x in stretches of counts[e] rows, each stretch through matrix e [out, in] and bias e."""

    @staticmethod
    def forward(ctx, x, w, bias, counts):
        ctx.save_for_backward(x, w)
        ctx.counts = counts
        y = x.new_empty(len(x), w.shape[1])
        for rows, out, m, b in zip(x.split(counts), y.split(counts), w, bias):
            torch.addmm(b, rows, m.t(), out=out)
        return y

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        dx, dw, db = torch.empty_like(x), torch.empty_like(w), w.new_empty(w.shape[:2])
        for e, (rows, dy, out) in enumerate(zip(x.split(ctx.counts), g.split(ctx.counts), dx.split(ctx.counts))):
            torch.mm(dy, w[e], out=out)
            torch.mm(dy.t(), rows, out=dw[e])
            torch.sum(dy, 0, out=db[e])
        return dx, dw, db, None


def experts(c, w, p, x, quantise):
    """-> output, load-balancing loss (Fedus et al. 2021): E * sum over experts of share of tokens * mean probability."""
    shape, k, e = x.shape, c["num_experts_per_tok"], c["num_local_experts"]
    x = x.flatten(0, 1)
    logits = x @ w[p + "router.weight"].t() + w[p + "router.bias"]
    top, chosen = logits.topk(k)
    order = chosen.flatten().argsort(stable=True)
    inverse = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
    counts = torch.bincount(chosen.flatten(), minlength=e)
    held = rounded if quantise else lambda m: m
    y = Permute.apply(x[:, None].expand(-1, k, -1).reshape(-1, shape[-1]), order, inverse)
    y = GroupedLinear.apply(y, held(w[p + "experts.gate_up_proj"]), w[p + "experts.gate_up_proj_bias"], counts.tolist())
    gate, up = y.chunk(2, -1)
    gate, up = gate.clamp(max=c["swiglu_limit"]), up.clamp(-c["swiglu_limit"], c["swiglu_limit"])
    y = F.silu(gate * 1.702) * (up + 1) * (1 / 1.702)  # gate * sigmoid(1.702 gate) * (up + 1)
    y = GroupedLinear.apply(y, held(w[p + "experts.down_proj"]), w[p + "experts.down_proj_bias"], counts.tolist())
    y = Permute.apply(y, inverse, order).view(-1, k, shape[-1])
    balance = e * (counts / counts.sum() * logits.softmax(-1).mean(0)).sum()
    return torch.matmul(top.softmax(-1)[:, None], y).view(shape), balance


def forward(c, w, ids, dropout=0.0, quantise=False):
    """ids [B, T] -> logits [B, T, V], load-balancing loss (mean over layers)."""
    table, balance = rope(c, ids.shape[1]), 0
    x = F.dropout(F.embedding(ids, w["model.embed_tokens.weight"]), dropout, dropout > 0)
    for i, kind in enumerate(c["layer_types"]):
        p = f"model.layers.{i}."
        window = c["sliding_window"] if kind == "sliding_attention" else None
        y = attention(c, w, p + "self_attn.", norm(x, w[p + "input_layernorm.weight"], c["rms_norm_eps"]), window, table)
        x = x + F.dropout(y, dropout, dropout > 0)
        y, loss = experts(c, w, p + "mlp.", norm(x, w[p + "post_attention_layernorm.weight"], c["rms_norm_eps"]), quantise)
        x = x + F.dropout(y, dropout, dropout > 0)
        balance = balance + loss / len(c["layer_types"])
    x = F.dropout(norm(x, w["model.norm.weight"], c["rms_norm_eps"]), dropout, dropout > 0)
    return x @ w["lm_head.weight"].t(), balance


@torch.no_grad()
def bits(c, w, ids, end, window, quantise=False):
    """Sum of -log2 p over all ids: windows of `window` ids that do not overlap, each alone behind one end-of-text token.

    Window i holds ids[i*window : (i+1)*window]; the model reads the end token and all of them but the last."""
    total = 0.0
    for at in range(0, len(ids), window):
        target = torch.tensor(ids[at:at + window])
        logits, _ = forward(c, w, torch.cat((torch.tensor([end]), target[:-1]))[None], quantise=quantise)
        total += F.cross_entropy(logits[0], target, reduction="sum").item() / math.log(2)
    return total
