"""Names that a client must never set, and names that need the operator's word; each with the reason that is told.

Collected from the request types of SGLang 0.5.23, vLLM 0.32, TensorRT-LLM, Dynamo, LMDeploy, LMCache, llama-server and
the llm-d router, and from public reports; docs/guides/edge.md names them. What is allowed stands in `shapes.py`: a name
in neither place is unknown. Names are compared squeezed, so `KV-Transfer-Params` is `kv_transfer_params`.
"""

from __future__ import annotations

from collections.abc import Mapping

WORKERS = "names a worker, a rank or a peer"
TRANSFER = "names pages of another request"
CACHE = "decides with whom the cache is shared"
IDENTITY = "names a request, a session or a stored answer that may be another's"
INPUT = "is a prompt in a form that nobody counts or reads"
CODE = "is code or a template that the server would run"
REACH = "would make the server call an address of the client's choice"

_NEVER: Mapping[str, tuple[str, ...]] = {
    WORKERS: (
        "bootstrap_host", "bootstrap_port", "bootstrap_room", "bootstrap_addr", "remote_bootstrap_addr",
        "routed_dp_rank", "disagg_prefill_dp_rank", "data_parallel_rank", "data_parallel_rank_decode", "dp_rank",
        "prefill_dp_rank", "decode_dp_rank", "ctx_dp_rank", "backend_instance_id", "worker_id", "prefill_worker_id",
        "decode_worker_id", "worker_instance_id", "prefill_instance_id", "query_instance_id", "ctx_info_endpoint",
        "remote_host", "remote_port", "remote_engine_id", "id_slot", "slot_id", "agent_hierarchy",
    ),
    TRANSFER: (
        "kv_transfer_params", "ec_transfer_params", "disaggregated_params", "disagg_request_id", "ctx_request_id",
        "do_remote_prefill", "do_remote_decode", "remote_block_ids", "remote_request_id", "transfer_id",
        "migration_request", "with_cache", "preserve_cache", "encoded_opaque_state", "first_gen_tokens", "draft_tokens",
    ),
    CACHE: ("cache_salt", "extra_key", "cache_sharing", "request_configs", "multi_modal_uuids", "mm_hashes", "uuid"),
    IDENTITY: (
        "rid", "request_id", "session_id", "session_params", "session_control", "conversation", "conversation_id",
        "conversation_params", "previous_response_id", "previous_input_messages", "interactive_mode", "file_id",
        "item_reference",
    ),
    INPUT: (
        "input_ids", "prompt_token_ids", "prompt_token_ids_b64", "token_data", "token_ids", "prompt_embeds",
        "input_embeds", "embed_overrides", "embed_override_token_id", "image_embeds", "audio_embeds", "mm_payload",
        "multi_modal_data", "image_data", "use_raw_prompt",
    ),
    CODE: (
        "custom_logit_processor", "custom_params", "logits_processors", "chat_template",
        "injected_chat_template_kwargs",
    ),
    REACH: ("server_url", "connector_id", "callback_url", "webhook_url"),
}  # fmt: skip

COUNTED = "would make the prompt other than what was counted"
SHORTENED = "would shorten a prompt in silence"
SCHEDULED = "moves a request before those of others"
ADAPTER = "chooses an adapter"
INSIDE = "asks for what is inside the model or the server"
KEPT = "would keep an answer on the server, without an owner"
BAG = "holds whatever an engine may read from it"

_GUARDED: Mapping[str, tuple[str, ...]] = {
    COUNTED: (
        "documents", "do_preprocess", "prompt_ignore_length", "media_io_kwargs", "mm_processor_kwargs", "images_config",
        "video_config", "max_dynamic_patch", "min_dynamic_patch", "use_audio_in_video", "task",
    ),
    SHORTENED: ("truncate_prompt_tokens", "truncation", "truncation_side", "allow_auto_truncate", "truncate"),
    SCHEDULED: ("priority", "service_tier"),
    ADAPTER: ("lora", "lora_path", "lora_request", "lora_name", "adapter_name"),
    INSIDE: (
        "return_hidden_states", "return_routed_experts", "routed_experts_start_len", "routed_experts_prompt_start",
        "return_context_logits", "return_mm_kwargs", "return_meta_info", "return_cached_tokens_details",
        "prompt_logprobs", "enable_response_messages",
    ),
    KEPT: ("store", "background"),
    BAG: (
        "nvext", "vllm_xargs", "extra_body", "extra_args", "sampling_params", "custom_labels", "agent_hints",
        "use_beam_search", "repetition_detection",
    ),
}  # fmt: skip

# Values with which a guarded field asks for nothing; so does null.
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "background": (False,),
    "documents": ([],),
    "priority": (0,),
    "return_hidden_states": (False,),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "truncation": ("disabled",),
    "use_beam_search": (False,),
}

NEVER_PREFIXES = ("lmcache",)
"""LMCache reads `lmcache.tag.*`, `lmcache.skip_save` and others from wherever an engine takes extra fields."""

TEMPLATE_RESERVED = frozenset({
    "add_generation_prompt", "chat_template", "continue_final_message", "conversation", "documents", "max_length",
    "messages", "padding", "return_tensors", "tokenize", "tools", "truncation",
})  # fmt: skip
"""Arguments of the function that renders a template: as `chat_template_kwargs` they would replace the server's."""

HEADERS_NEVER = frozenset({
    "x-bootstrap-host", "x-bootstrap-port", "x-bootstrap-room", "x-body-compressed", "x-data-parallel-host-port",
    "x-data-parallel-rank", "x-dp-rank", "x-encoder-hosts-ports", "x-kv-transfer-params", "x-lmdeploy-distserve-proxy",
    "x-prefill-dp-rank", "x-prefill-instance-id", "x-smg-routing-key", "x-vllm-priority", "x-worker-instance-id",
})  # fmt: skip
HEADER_PREFIXES_NEVER = ("x-override-", "x-prefiller-", "x-decoder-", "x-dynamo-", "x-gateway-", "x-sglext-")


def squeezed(name: str) -> str:
    """A name without what spelling can vary: case, blanks, hyphens, underscores and dots."""
    return "".join(char for char in name.lower() if char.isalnum())


def _by_squeezed(groups: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    return {squeezed(name): reason for reason, names in groups.items() for name in names}


NEVER: Mapping[str, str] = _by_squeezed(_NEVER)
GUARDED: Mapping[str, str] = _by_squeezed(_GUARDED)
NEVER_NAMES = frozenset(name for names in _NEVER.values() for name in names)
GUARDED_NAMES = frozenset(name for names in _GUARDED.values() for name in names)


def never(name: str) -> str | None:
    """Why this name may never come from a client, however it is spelled."""
    if not name.isascii():
        return "is written with letters that no field has, and could be read as another"
    plain = squeezed(name)
    return CACHE if plain.startswith(NEVER_PREFIXES) else NEVER.get(plain)
