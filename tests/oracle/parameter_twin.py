"""A second way to count a decoder's parameters: one closed formula, no list of tensors."""

from __future__ import annotations


def parameters_by_formula(shape) -> tuple[int, int]:
    """Return (total, active) of a model shape."""
    h, a, k, d = shape.hidden_size, shape.num_heads, shape.num_kv_heads, shape.head_dim
    if shape.latent is not None:
        t = shape.latent
        attention = t.q_lora_rank * (h + 1 + a * (t.qk_nope_head_dim + t.qk_rope_head_dim))
        attention += h * t.qk_rope_head_dim
        attention += t.kv_lora_rank * (h + 1 + a * (t.qk_nope_head_dim + t.v_head_dim)) + h * a * t.v_head_dim
    else:
        attention = 2 * h * d * (a + k)
        attention += shape.qkv_bias * (a + 2 * k) * d + shape.output_bias * h
        attention += shape.qk_norm * 2 * d + shape.attention_sinks * a
    every_layer = attention + shape.norms_per_layer * h
    layers, dense = shape.num_layers, shape.num_layers
    all_experts = used_experts = 0
    if shape.experts is not None:
        e = shape.experts
        dense = e.dense_layers
        one = 3 * h * e.ffn_size + e.expert_bias * (2 * e.ffn_size + h)
        common = e.num_experts * (h + e.router_bias) + 3 * h * e.ffn_size * e.shared_experts
        all_experts = e.num_experts * one + common
        used_experts = e.experts_per_token * one + common
    tables = shape.vocabulary_size * h * (1 if shape.tied_embeddings else 2)
    fixed = layers * every_layer + dense * 3 * h * shape.ffn_size + tables + h
    return fixed + (layers - dense) * all_experts, fixed + (layers - dense) * used_experts
