from .contract import (
    RolloutContract as RolloutContract,
    batch_contract_errors as batch_contract_errors,
    require_contract as require_contract,
    rollout_contract_errors as rollout_contract_errors,
)
from .findings import RULES as RULES, ContractFinding as ContractFinding
