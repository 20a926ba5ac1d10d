"""What each adapter has to keep: a captured node, what it takes for the gate to pass it, and on what that rests.

To add an engine: its folder under `captured/` and a `Contract` here; `test_adapters.py` breaks it in every way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.fleet.replay import Document, Field, Node, changed, node


@dataclass(frozen=True)
class Contract:
    """One node of an engine.

    role      "router" for a server at the address that clients know, or the leg of a pair
    sound     changes that make the captured node pass the gate, where it does not as it was
    decisive  each of these, unreadable, must keep the gate from passing; so must each of their documents
    without   documents that this node does not have
    beside    the other leg
    exit_code what the gate says of the sound node; an old address is no live figure, and a nameless engine no version
    """

    engine: str
    folder: str
    decisive: tuple[Field, ...]
    role: str = "router"
    sound: tuple[tuple[Field, object], ...] = ()
    without: tuple[str, ...] = ()
    declared: Mapping[str, int] = field(default_factory=dict)
    beside: tuple[tuple[str, str], ...] = ()
    name: str = ""
    exit_code: int = 0

    def __str__(self) -> str:
        return self.name or f"{self.engine}: {self.folder}"

    def documents(self) -> dict[str, Document]:
        """The node as it was captured."""
        return node(self.folder, self.without)

    def passing(self) -> dict[str, Document]:
        """The node that the gate passes."""
        documents = self.documents()
        for where, value in self.sound:
            documents = changed(documents, where, value)
        return documents

    def fleet(self, documents: Node) -> tuple[tuple[str, Node], ...]:
        """The node with these documents, and whoever stands beside it."""
        others = [(role, changed(node(folder), CHECKSUM, True)) for role, folder in self.beside]
        return ((self.role, documents), *others)


MODELS = Field("/v1/models", ("data", 0, "max_model_len"))
OWNER = Field("/v1/models", ("data", 0, "owned_by"))
CHECKSUM = Field("/server_info", ("disaggregation_enable_kv_checksum",))


def capacity(path: str = "/server_info") -> Field:
    """Where SGLang tells the pool of rank 0."""
    return Field(path, ("internal_states", 0, "memory_usage", "token_capacity"))


def label(name: str) -> Field:
    """A label of the sample where vLLM tells its pool."""
    return Field("/metrics", ("vllm:cache_config_info", name))


CONTRACTS = (
    Contract(
        "sglang",
        "sglang-0.5.23/single",
        without=("/get_server_info",),
        sound=((capacity(), 4096),),
        decisive=(capacity(), Field("/server_info", ("dp_size",)), MODELS),
    ),
    Contract(
        "sglang",
        "sglang-0.5.23/single",
        name="sglang: sglang-0.5.23/single, by its deprecated address",
        exit_code=3,
        without=("/server_info",),
        sound=((capacity("/get_server_info"), 4096),),
        decisive=(capacity("/get_server_info"), Field("/get_server_info", ("dp_size",)), MODELS),
    ),
    Contract(
        "sglang",
        "sglang-0.5.23/pd-prefill",
        role="prefill",
        sound=((capacity(), 4096), (CHECKSUM, True)),
        decisive=(capacity(), Field("/server_info", ("dp_size",))),
        beside=(("decode", "sglang-0.5.23/pd-decode"),),
    ),
    Contract(
        "vllm",
        "vllm-0.32.0",
        decisive=(label("kv_cache_size_tokens"), label("num_gpu_blocks"), label("block_size"), MODELS, OWNER),
    ),
    Contract(
        "llama-server",
        "llama-server-b11434",
        declared={"pool": 2048},
        decisive=(Field("/props", ("default_generation_settings", "n_ctx")),),
    ),
    Contract(
        "openai-compatible",
        "vllm-0.32.0",
        name="openai-compatible: the model list of vllm-0.32.0 under another owner",
        without=("/version", "/metrics"),
        sound=((OWNER, "somebody"),),
        declared={"pool": 4096},
        exit_code=3,
        decisive=(MODELS,),
    ),
)
