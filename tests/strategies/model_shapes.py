"""Small decoders of every kind that the package describes."""

from __future__ import annotations

from hypothesis import strategies as st

from lagsweep.kernels import ExpertShape, LatentShape, ModelShape

_small = st.integers(1, 12)


@st.composite
def model_shapes(draw) -> ModelShape:
    layers, kv_heads = draw(st.integers(1, 8)), draw(st.sampled_from([1, 2, 4]))
    experts = latent = None
    if draw(st.booleans()):
        number = draw(st.sampled_from([2, 4, 8]))
        experts = ExpertShape(
            num_experts=number,
            experts_per_token=draw(st.integers(1, number)),
            ffn_size=8 * draw(_small),
            shared_experts=draw(st.integers(0, 2)),
            dense_layers=draw(st.integers(0, layers)),
            router_bias=draw(st.booleans()),
            expert_bias=draw(st.booleans()),
        )
    if draw(st.booleans()):
        latent = LatentShape(
            q_lora_rank=draw(_small),
            kv_lora_rank=draw(_small),
            qk_nope_head_dim=draw(_small),
            qk_rope_head_dim=draw(_small),
            v_head_dim=draw(_small),
        )
    sliding = draw(st.integers(0, layers))
    return ModelShape(
        name="drawn",
        num_layers=layers,
        hidden_size=8 * draw(_small),
        num_heads=kv_heads * draw(st.sampled_from([1, 2, 4])),
        num_kv_heads=kv_heads,
        head_dim=draw(_small),
        ffn_size=8 * draw(_small),
        vocabulary_size=draw(st.integers(2, 99)),
        tied_embeddings=draw(st.booleans()),
        qkv_bias=draw(st.booleans()),
        output_bias=draw(st.booleans()),
        qk_norm=draw(st.booleans()),
        attention_sinks=draw(st.booleans()),
        norms_per_layer=draw(st.sampled_from([2, 4])),
        sliding_window=draw(st.integers(1, 9)) if sliding else None,
        sliding_layers=sliding,
        experts=experts,
        latent=latent,
    )
