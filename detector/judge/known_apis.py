"""The APIs, settings and terms that advice may name: those of PyTorch and its tools.

A model likes to invent functions. What a fix names has to stand here, in the taxonomy or in the
evidence. One line a family; names without their arguments.
"""

from __future__ import annotations

from typing import Final

_NAMES: Final = """
DataLoader num_workers prefetch_factor persistent_workers pin_memory pin_memory_device batch_size
drop_last collate_fn worker_init_fn multiprocessing_context IterableDataset Dataset __getitem__
torch.utils.data torch.utils.data.DataLoader torch.utils.data.Dataset torchvision torchvision.io
torchvision.transforms.v2 torchaudio nvJPEG DALI WebDataset non_blocking copy_ to_device
torch.cuda torch.cuda.synchronize torch.cuda.stream torch.cuda.Stream torch.cuda.Event
torch.cuda.current_stream torch.cuda.wait_stream wait_stream wait_event record_stream record_event
torch.cuda.graph torch.cuda.CUDAGraph torch.cuda.graphs torch.cuda.make_graphed_callables
make_graphed_callables torch.cuda.empty_cache empty_cache torch.cuda.memory_reserved
torch.cuda.set_sync_debug_mode set_sync_debug_mode torch.cuda.nvtx synchronize non-blocking
PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF expandable_segments max_split_size_mb
CUDA_LAUNCH_BLOCKING HIP_LAUNCH_BLOCKING TORCH_LOGS AMD_SERIALIZE_KERNEL
torch.compile torch._dynamo torch.compiler torch._inductor mode reduce-overhead max-autotune
fullgraph dynamic mark_dynamic torch._dynamo.mark_dynamic torch.compiler.disable
torch.compiler.cudagraph_mark_step_begin cache_size_limit recompile_limit TorchDynamo TorchInductor
torch.jit torch.jit.script torch.export torch.fx vmap torch.vmap torch.func functional_call
torch.amp torch.amp.autocast torch.autocast autocast GradScaler torch.amp.GradScaler
torch.set_float32_matmul_precision set_float32_matmul_precision
torch.backends.cuda.matmul.allow_tf32 torch.backends.cudnn.allow_tf32 allow_tf32 fp32_precision
torch.backends.cuda.matmul.fp32_precision torch.backends.cudnn.conv.fp32_precision
torch.backends.cudnn.benchmark torch.backends.cudnn.deterministic torch.backends cudnn.benchmark
channels_last torch.channels_last memory_format contiguous contiguous_format to_memory_format
torch.float16 torch.bfloat16 torch.float32 torch.float64 torch.half torch.int8 torch.long
bfloat16 float16 float32 bf16 fp16 fp32 fp64 tf32 TF32 BF16 FP16 FP32 FP64 FP8 fp8 int8 INT8 int64
torch.nn torch.nn.functional torch.nn.Module nn.Module nn.Linear nn.Embedding nn.Conv2d nn.Dropout
nn.BatchNorm2d nn.LayerNorm nn.MultiheadAttention nn.Sequential nn.GELU F.linear F.gelu F.silu
F.scaled_dot_product_attention scaled_dot_product_attention sdpa_kernel SDPBackend
torch.nn.functional.scaled_dot_product_attention torch.nn.attention torch.nn.attention.sdpa_kernel
flex_attention FlashAttention flash_attn flash_attention_2 attn_implementation xFormers is_causal
torch.optim torch.optim.Adam torch.optim.AdamW torch.optim.SGD Adam AdamW SGD Optimizer
Optimizer.step Optimizer.zero_grad optimizer.step optimizer.zero_grad zero_grad set_to_none foreach
fused capturable clip_grad_norm_ clip_grad_value_ torch.nn.utils.clip_grad_norm_ state_dict
torch._foreach_add_ torch._foreach_mul_ _foreach_add_ _fused_adamw_ GradientAccumulation
torch.no_grad no_grad torch.inference_mode inference_mode requires_grad requires_grad_ detach
model.eval eval train backward torch.autograd torch.autograd.Function grad_fn retain_graph
torch.utils.checkpoint checkpoint use_reentrant
Tensor.item item tolist numpy nonzero masked_select masked_fill boolean_mask unique
repeat_interleave
torch.where torch.nonzero torch.cat torch.stack torch.split torch.chunk torch.empty torch.zeros
torch.ones torch.full torch.arange torch.tensor torch.as_tensor torch.from_numpy torch.matmul
torch.bmm torch.baddbmm torch.addmm torch.einsum torch.index_select torch.gather torch.scatter
torch.topk torch.sort torch.isfinite torch.isnan torch.argmax torch.softmax index_select index_add_
index_copy_ gather scatter expand view reshape permute transpose narrow slice clone copy_op
torch.equal torch.allclose torch.any torch.all torch.distributed torch.is_tensor
DistributedDataParallel torch.nn.parallel.DistributedDataParallel DDP FSDP FSDP2 DTensor NCCL RCCL
FullyShardedDataParallel fully_shard no_sync set_requires_gradient_sync bucket_cap_mb
gradient_as_bucket_view static_graph find_unused_parameters broadcast_buffers limit_all_gathers
forward_prefetch backward_prefetch reshard_after_forward ZeroRedundancyOptimizer async_op
all_reduce all_gather reduce_scatter all_to_all broadcast barrier all_gather_into_tensor
reduce_scatter_tensor torch.distributed.all_reduce torch.distributed.barrier dist.barrier
torch.distributed.all_gather_into_tensor torch.distributed.reduce_scatter_tensor comm_hook
register_comm_hook fp16_compress_hook bf16_compress_hook SyncBatchNorm
gc.collect gc.freeze gc.disable gc.enable gc.set_threshold time.time time.perf_counter
torch.profiler torch.profiler.profile record_shapes with_stack profile_memory schedule
record_function torch.profiler.record_function ProfilerStep ProfilerActivity
StaticCache DynamicCache past_key_values use_cache cache_implementation KV k_cache v_cache vLLM
PyTorch NumPy CuPy Triton CUTLASS cuDNN cuBLAS cuBLASLt cuSPARSE MIOpen rocBLAS hipBLASLt ROCm CUDA
CUDAGraph CUDAGraphs NVLink PCIe InfiniBand GPU CPU GEMM GEMMs OpenCV PIL Pillow cv2 HuggingFace
Accelerate DeepSpeed Lightning Apex TransformerEngine Python CPython JIT GIL DtoH HtoD DtoD H2D D2H
A100 H100 H200 B200 V100 T4 L4 L40 A10 MI210 MI250 MI300 MI300X RTX P100 sm_70 sm_80 sm_90
cudaMemcpyAsync cudaMemcpy cudaStreamSynchronize cudaDeviceSynchronize cudaEventSynchronize
cudaLaunchKernel cudaMalloc cudaFree cudaHostAlloc cudaMallocAsync cuLaunchKernel hipLaunchKernel
hipMemcpyAsync hipMemcpyWithStream hipStreamSynchronize hipDeviceSynchronize cudaGraphLaunch
BatchNorm2d LayerNorm Conv2d GroupNorm RMSNorm Dropout Linear MultiheadAttention AutoCast TensorCore
"""

NAMES: Final = frozenset(_NAMES.split())
