from .algebra import (
    combined_mask as combined_mask,
    mask_from_lengths as mask_from_lengths,
    shifted_mask as shifted_mask,
    trained_tokens as trained_tokens,
)
from .completion import (
    completion_ended as completion_ended,
    completion_lengths as completion_lengths,
    completion_token_mask as completion_token_mask,
    truncation_flags as truncation_flags,
)
from .means import (
    CompletionStatistics as CompletionStatistics,
    completion_statistics as completion_statistics,
    masked_mean as masked_mean,
)
