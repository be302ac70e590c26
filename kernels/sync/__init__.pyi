from .collectives import (
    best_chain_chunks as best_chain_chunks,
    binomial_tree_seconds as binomial_tree_seconds,
    fan_out_seconds as fan_out_seconds,
    pipelined_chain_seconds as pipelined_chain_seconds,
    ring_all_reduce_seconds as ring_all_reduce_seconds,
)
from .deltas import bf16_update_visible as bf16_update_visible, delta_payload_bytes as delta_payload_bytes
from .schedule import (
    SynchronizationSchedule as SynchronizationSchedule,
    synchronization_schedule as synchronization_schedule,
)
from .shards import (
    node_fan_out_seconds as node_fan_out_seconds,
    point_to_point_seconds as point_to_point_seconds,
    sharded_point_to_point_seconds as sharded_point_to_point_seconds,
)
from .transfer import (
    PublicationReport as PublicationReport,
    TransferReport as TransferReport,
    bucket_count as bucket_count,
    gigabits_to_gigabytes_per_second as gigabits_to_gigabytes_per_second,
    publication_report as publication_report,
    synchronization_transfer_time as synchronization_transfer_time,
    transfer_report as transfer_report,
)
