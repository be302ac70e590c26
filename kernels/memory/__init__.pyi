from .activations import (
    ActivationMemory as ActivationMemory,
    activation_bytes as activation_bytes,
    logits_peak_bytes as logits_peak_bytes,
)
from .kv_cache import (
    PagedKVCache as PagedKVCache,
    kv_cache_bytes as kv_cache_bytes,
    latent_kv_cache_bytes as latent_kv_cache_bytes,
    paged_kv_cache as paged_kv_cache,
)
from .kv_capacity import (
    KVCapacity as KVCapacity,
    StageCapacity as StageCapacity,
    group_cache_tokens as group_cache_tokens,
    max_sequences as max_sequences,
    stage_capacity as stage_capacity,
)
from .kv_layers import (
    KVLayer as KVLayer,
    hybrid_kv_cache_bytes as hybrid_kv_cache_bytes,
    sliding_window_tokens as sliding_window_tokens,
)
from .parameter_ranks import StageParameters as StageParameters, parameters_on_rank as parameters_on_rank
from .parameters import (
    ParameterCount as ParameterCount,
    ParameterTensor as ParameterTensor,
    lora_parameters as lora_parameters,
    parameter_count as parameter_count,
    parameter_tensors as parameter_tensors,
    tensor_shapes as tensor_shapes,
)
from .phases import PeakMemory as PeakMemory, peak_memory as peak_memory
from .recipes import (
    RECIPES as RECIPES,
    adafactor_state_bytes as adafactor_state_bytes,
    block_scaled_bytes as block_scaled_bytes,
    blockwise_8bit_state_bytes as blockwise_8bit_state_bytes,
)
from .shapes import (
    ExpertShape as ExpertShape,
    LatentShape as LatentShape,
    ModelShape as ModelShape,
    model_kv_layers as model_kv_layers,
)
from .sharding import (
    ShardedMemory as ShardedMemory,
    gathered_layer_bytes as gathered_layer_bytes,
    ideal_sharded_memory as ideal_sharded_memory,
)
from .state import ModelState as ModelState, model_state_bytes as model_state_bytes
from .units import (
    BYTES_PER_GB as BYTES_PER_GB,
    BYTES_PER_GIB as BYTES_PER_GIB,
    human_bytes as human_bytes,
    parse_bytes as parse_bytes,
)
