# Weights, gradients and optimizer states sharded over the processes, a transformer block at a time (FSDP).
runner_type = "FlexibleRunner"
strategy = dict(
    type="FSDPStrategy",
    state_dict_cfg="full",
    model_wrapper=dict(type="vitdense.FullyShardedDataParallel", auto_wrap_policy=dict(type="vitdense.wrap_blocks")),
)
