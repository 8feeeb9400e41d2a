# SPDX-License-Identifier: Apache-2.0
"""safetensors and GGUF v3, as far as the golden cases need them. The readers share no code with the writers.

Tensors are torch tensors, but in a GGUF file (MXFP4 has no torch type) `GgufWriter.add` also takes ("mxfp4", bytes, shape).
"""

import glob
import json
import struct

import numpy as np
import torch

SAFETENSORS_TYPES = {  # in the order in which the published library stores them: widest first
    "F32": torch.float32, "I32": torch.int32, "BF16": torch.bfloat16, "F16": torch.float16, "U8": torch.uint8}


def raw_bytes(t):
    t = t.contiguous()
    return (t.view(torch.int16) if t.dtype == torch.bfloat16 else t).numpy().tobytes()


def write_safetensors(path, tensors, metadata):
    """Bytes as the published library writes them: sorted by type, then name; the header padded to 8 bytes."""
    names = {dtype: name for name, dtype in SAFETENSORS_TYPES.items()}
    order = list(SAFETENSORS_TYPES)
    items = sorted(tensors.items(), key=lambda item: (order.index(names[item[1].dtype]), item[0]))
    header, at = {"__metadata__": metadata}, 0
    for name, t in items:
        size = t.numel() * t.element_size()
        header[name] = {"dtype": names[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + size]}
        at += size
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for _, t in items:
            f.write(raw_bytes(t))


def read_safetensors(path):
    with open(path, "rb") as f:
        data = f.read()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, t in json.loads(data[8:start]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            dtype = SAFETENSORS_TYPES[t["dtype"]]
            out[name] = torch.frombuffer(bytearray(data[start + begin:start + end]), dtype=dtype).reshape(t["shape"])
    return out


def read_checkpoint(directory):
    """config.json and the tensors of all model*.safetensors."""
    tensors = {}
    for path in sorted(glob.glob(directory + "/model*.safetensors")):
        tensors.update(read_safetensors(path))
    with open(directory + "/config.json") as f:
        return json.load(f), tensors


U32, I32, F32, BOOL, STRING, I32_ARRAY, BOOL_ARRAY = 4, 5, 6, 7, 8, 9, "bools"  # an array says the type of its elements
GGML_TYPES = {"f32": 0, "f16": 1, "bf16": 30, "mxfp4": 39}
ALIGNMENT = 32


class GgufWriter:
    def __init__(self, architecture):
        self.architecture, self.keys, self.tensors = architecture, [], []
        self.put("general.architecture", STRING, architecture)
        self.put("general.name", STRING, "golden")
        self.put("general.alignment", U32, ALIGNMENT)

    def put(self, key, kind, value):
        def text(b):
            return struct.pack("<Q", len(b)) + b

        if kind == I32_ARRAY:
            body = struct.pack(f"<IQ{len(value)}i", I32, len(value), *value)
        elif kind == BOOL_ARRAY:
            body, kind = struct.pack(f"<IQ{len(value)}?", BOOL, len(value), *value), I32_ARRAY
        else:
            body = text(value.encode()) if kind == STRING else struct.pack({U32: "<I", F32: "<f", BOOL: "<?"}[kind], value)
        self.keys.append(text(key.encode()) + struct.pack("<I", kind) + body)

    def u32(self, key, value):
        self.put(f"{self.architecture}.{key}", U32, int(value))

    def f32(self, key, value):
        self.put(f"{self.architecture}.{key}", F32, float(value))

    def boolean(self, key, value):
        self.put(f"{self.architecture}.{key}", BOOL, bool(value))

    def string(self, key, value):
        self.put(f"{self.architecture}.{key}", STRING, value)

    def add(self, name, t):
        """Stored in its own type; one-dimensional tensors as F32."""
        if isinstance(t, tuple):
            self.tensors.append((name, t[2], *t[:2]))
            return
        if t.dim() == 1:
            t = t.float()
        kind = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}[t.dtype]
        self.tensors.append((name, t.shape, kind, raw_bytes(t)))

    def write(self, path):
        infos, at = b"", 0
        for name, shape, kind, data in self.tensors:
            infos += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(shape))
            infos += struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", GGML_TYPES[kind], at)
            at += -(-len(data) // ALIGNMENT) * ALIGNMENT
        with open(path, "wb") as f:
            f.write(b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.keys)) + b"".join(self.keys) + infos)
            f.write(b"\0" * (-f.tell() % ALIGNMENT))
            for _, _, _, data in self.tensors:
                f.write(data + b"\0" * (-len(data) % ALIGNMENT))


def read_gguf(path):
    """-> keys {name: value}, tensors {name: float64 array, rows first}. Of the types F32, F16 and BF16."""
    with open(path, "rb") as f:
        data = f.read()
    at = 0

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def take_text():
        n = take("Q")
        return bytes(take(f"{n}s")).decode()

    if take("4s") != b"GGUF" or take("I") != 3:
        raise ValueError(path + " is not GGUF v3")
    n_tensors, n_keys = take("QQ")
    keys = {}
    for _ in range(n_keys):
        name, kind = take_text(), take("I")
        if kind == I32_ARRAY:
            of, n = take("I"), take("Q")
            keys[name] = [take("?" if of == BOOL else "i") for _ in range(n)]
        else:
            keys[name] = take_text() if kind == 8 else take({4: "I", 6: "f", 7: "?"}[kind])
    infos = []
    for _ in range(n_tensors):
        name, n_dims = take_text(), take("I")
        infos.append((name, [take("Q") for _ in range(n_dims)][::-1], *take("IQ")))
    start = -(-at // keys["general.alignment"]) * keys["general.alignment"]
    tensors = {}
    for name, shape, kind, offset in infos:
        n = int(np.prod(shape))
        if kind == 30:
            values = (np.frombuffer(data, "<u2", n, start + offset).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(data, {0: "<f4", 1: "<f2"}[kind], n, start + offset)
        tensors[name] = values.astype(np.float64).reshape(shape)
    return keys, tensors
