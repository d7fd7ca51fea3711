"""Writes a model folder of a given shape with random bf16 weights, for peers.

    dummy_model.py FOLDER                # Qwen2.5-0.5B's shape, no tokenizer
    dummy_model.py FOLDER --gguf FILE    # and the same weights for llama.cpp

Needs numpy; --gguf needs the `gguf` package.
"""

import argparse
import json
import pathlib
import struct

import numpy

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
    "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "hidden_act": "silu",
    "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "max_position_embeddings": 32768, "vocab_size": 151936,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "attention_dropout": 0.0, "initializer_range": 0.02,
    "bos_token_id": 151643, "eos_token_id": 151643, "use_cache": True,
    "use_sliding_window": False, "sliding_window": 32768,
    "max_window_layers": 24,
}


def tensors(config):
    """(name, shape, scale or None for a norm) of every tensor."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden), 0.02
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (hidden,), None
        for name, out in (("q", hidden), ("k", kv), ("v", kv)):
            yield f"{layer}self_attn.{name}_proj.weight", (out, hidden), 0.03
            yield f"{layer}self_attn.{name}_proj.bias", (out,), 0.01
        yield layer + "self_attn.o_proj.weight", (hidden, hidden), 0.03
        yield layer + "post_attention_layernorm.weight", (hidden,), None
        yield layer + "mlp.gate_proj.weight", (inner, hidden), 0.03
        yield layer + "mlp.up_proj.weight", (inner, hidden), 0.03
        yield layer + "mlp.down_proj.weight", (hidden, inner), 0.015
    yield "model.norm.weight", (hidden,), None


def make(shape, scale, draw):
    """float32 values that bf16 holds exactly."""
    if scale is None:
        return numpy.ones(shape, numpy.float32)
    values = draw.standard_normal(shape, numpy.float32) * numpy.float32(scale)
    return (values.view(numpy.uint32) & 0xFFFF0000).view(numpy.float32)


def to_bf16(values):
    return (values.view(numpy.uint32) >> 16).astype(numpy.uint16)


def write_safetensors(path, config):
    draw = numpy.random.default_rng(1)
    header, offset = {}, 0
    for name, shape, _ in tensors(config):
        size = 2 * int(numpy.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape),
                        "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, shape, scale in tensors(config):
            out.write(to_bf16(make(shape, scale, draw)).tobytes())


GGUF_NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.k_proj.bias": "attn_k.bias",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.v_proj.bias": "attn_v.bias",
    "self_attn.o_proj.weight": "attn_output.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}


def gguf_name(name):
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{GGUF_NAMES[rest]}"


def write_gguf(path, config):
    import gguf
    draw = numpy.random.default_rng(1)
    out = gguf.GGUFWriter(str(path), "qwen2")
    out.add_block_count(config["num_hidden_layers"])
    out.add_context_length(4096)
    out.add_embedding_length(config["hidden_size"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(config["num_attention_heads"])
    out.add_head_count_kv(config["num_key_value_heads"])
    out.add_rope_freq_base(config["rope_theta"])
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2")
    out.add_token_list([f"t{i}" for i in range(config["vocab_size"])])
    out.add_token_types([1] * config["vocab_size"])
    out.add_token_merges(["t 1"])
    out.add_eos_token_id(config["eos_token_id"])
    for name, shape, scale in tensors(config):
        values = make(shape, scale, draw)
        if len(shape) == 1:
            out.add_tensor(gguf_name(name), values)
        else:
            out.add_tensor(gguf_name(name), to_bf16(values).view(numpy.uint8),
                           raw_dtype=gguf.GGMLQuantizationType.BF16)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--gguf", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "config.json").write_text(json.dumps(CONFIG, indent=1))
    write_safetensors(arguments.folder / "model.safetensors", CONFIG)
    if arguments.gguf:
        write_gguf(arguments.gguf, CONFIG)


if __name__ == "__main__":
    main()
