"""A causal language model small enough to make in a test: random weights, a byte tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
NO_SYSTEM_TEMPLATE = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    + CHAT_TEMPLATE
)


def make(folder: Path, *, chat_template: str | None = None, positions: int = 16_384) -> Path:
    """Write model and tokenizer into ``folder``, which is returned."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = _tokenizer()
    if chat_template:
        tokenizer.chat_template = chat_template
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=positions,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def make_parrot(folder: Path, says: str) -> Path:
    """A model that says the same again and again, whatever it is asked: its last layer norm forgets
    what it is given, and one token of its vocabulary is the whole answer."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = _tokenizer()
    tokenizer.add_tokens([says])
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=32_768,
        n_embd=8,
        n_layer=1,
        n_head=1,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        model.transformer.ln_f.weight.zero_()
        model.transformer.ln_f.bias.fill_(1.0)
        model.lm_head.weight.zero_()
        model.lm_head.weight[-1].fill_(1.0)
    model.save_pretrained(folder)
    return folder


def _tokenizer() -> Any:
    """A token for each byte."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {c: i for i, c in enumerate(["<pad>", "<s>", *alphabet])}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", bos_token="<s>")
