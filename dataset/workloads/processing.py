"""What serving and training programs do before a model: the tokenizers and image processors of
``transformers``, built from made-up parts."""

from __future__ import annotations

from functools import cache
from typing import Any

from PIL import Image
from torch import Tensor
from transformers import BertTokenizer
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = 4000


@cache
def _tokenizer() -> Any:
    words = [*SPECIAL, *(f"w{number}" for number in range(WORDS))]
    return BertTokenizer(vocab={word: i for i, word in enumerate(words)})


@cache
def _processor(side: int) -> Any:
    return ViTImageProcessorPil(size={"height": side, "width": side})


def tokenize(text: str, length: int) -> Tensor:
    """Token ids, int64 [length]."""
    found = _tokenizer()(
        text, truncation=True, max_length=length, padding="max_length", return_tensors="pt"
    )
    ids: Tensor = found["input_ids"][0]
    return ids


def process(picture: Image.Image, side: int) -> Tensor:
    """Resized and normalized pixels, float32 [3, side, side]."""
    pixels: Tensor = _processor(side)(picture, return_tensors="pt")["pixel_values"][0]
    return pixels
