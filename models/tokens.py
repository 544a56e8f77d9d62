"""What the game model reads: Mistral's vocabulary with 284 tokens added, and turns of a game written in it.

A turn is `<TURN>instruction<img><frame>queries</frame></img><ML>k</ML><SC>k</SC><ET>k</ET><ST>k</ST></TURN>`: motion
level, social, entertainment and stamina change, each one `<Strength_k>` token. The frame tokens of a finished turn hold
the place of its shot tokens; those of the turn to predict are the learned queries.

Instructions are data. They are encoded by the byte-pair model alone, which knows none of the added tokens, so nothing
a player types can open or close a tag. Vocabulary and turn are those of the released game model (arXiv 2504.01014).

Shapes: L positions of a prompt, or shot tokens of one turn; D width of a shot token.
"""

from __future__ import annotations

import importlib.resources
import shutil
import tempfile
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor
from transformers import AddedToken, LlamaTokenizer

from models.config import MOST_SHOT_TOKENS, Conventions
from pipeline.core.errors import UserError

MISTRAL_VOCABULARY = 32000
PAD, BOS, EOS = 0, 1, 2  # <unk>, <s> and </s> of Mistral
MOST_INSTRUCTION_TOKENS = 200

_FRAMES = tuple(f"<frame_{index:05d}>" for index in range(MOST_SHOT_TOKENS))
_MEDIA = ("<img>", "</img>", "<vid>", "</vid>", "<frame>", "</frame>")
_STRENGTHS = tuple(f"<Strength_{value}>" for value in range(-5, 6))
_STATE = ("<visual>", "<ML>", "</ML>", "<SC>", "</SC>", "<ET>", "</ET>", "<ST>", "</ST>", "<TURN>", "</TURN>")

ADDED_TOKENS = _FRAMES + _MEDIA + _STRENGTHS + _STATE
"""In the order of their ids, which start at 32000. `<vid>` and `<visual>` are never written; they keep their places."""

VOCABULARY = MISTRAL_VOCABULARY + len(ADDED_TOKENS)
ID_OF = {token: MISTRAL_VOCABULARY + place for place, token in enumerate(ADDED_TOKENS)}

FIRST_FRAME = ID_OF["<frame_00000>"]
ZERO_STRENGTH = ID_OF["<Strength_0>"]
TURN, END_TURN = ID_OF["<TURN>"], ID_OF["</TURN>"]
IMG, END_IMG = ID_OF["<img>"], ID_OF["</img>"]
FRAME, END_FRAME = ID_OF["<frame>"], ID_OF["</frame>"]
STATE_TAGS = tuple((ID_OF[f"<{name}>"], ID_OF[f"</{name}>"]) for name in ("ML", "SC", "ET", "ST"))
"""Opening and closing tag of the four state slots, in the order they are written."""


LEGAL_VALUES = {"level": (1, 2, 3, 4, 5), "social": (0, 1), "entertainment": (0, 1), "stamina": (-1, 1)}
LEGAL_IDS = tuple(tuple(ZERO_STRENGTH + value for value in legal) for legal in LEGAL_VALUES.values())
"""For each state slot the ids it may hold."""


@dataclass(frozen=True)
class State:
    """What a turn does besides its picture: how much moves, and how the three character values change.

    Fields stand in the order they are written. A value outside its range is a ValueError.
    """

    level: int
    """Motion level, 1 to 5."""
    social: int
    """0 or 1."""
    entertainment: int
    """0 or 1."""
    stamina: int
    """-1 or 1."""

    def __post_init__(self) -> None:
        for (name, legal), value in zip(LEGAL_VALUES.items(), self.values, strict=True):
            if value not in legal:
                raise ValueError(f"{name} of a state is one of {', '.join(map(str, legal))}, not {value!r}")

    @property
    def values(self) -> tuple[int, int, int, int]:
        """The four values in the order they are written."""
        return self.level, self.social, self.entertainment, self.stamina

    @property
    def ids(self) -> tuple[int, ...]:
        """The four `<Strength_k>` ids in the order they are written."""
        return tuple(ZERO_STRENGTH + int(value) for value in self.values)

    @classmethod
    def from_ids(cls, ids: Sequence[int]) -> Self:
        """The state of four `<Strength_k>` ids; ValueError for any other."""
        level, social, entertainment, stamina = (identifier - ZERO_STRENGTH for identifier in ids)
        return cls(level, social, entertainment, stamina)


@dataclass(frozen=True, eq=False)
class PastTurn:
    """A finished turn, as the game model remembers it."""

    instruction: str
    shot_tokens_LD: Tensor
    state: State

    def __post_init__(self) -> None:
        if self.shot_tokens_LD.ndim != 2 or not self.shot_tokens_LD.is_floating_point():
            given = f"{self.shot_tokens_LD.dtype} of shape {tuple(self.shot_tokens_LD.shape)}"
            raise ValueError(f"shot_tokens_LD of a past turn is a float matrix, not {given}")


@dataclass(frozen=True, eq=False)
class TokenPrompt:
    """A sequence for the game model: past turns and the turn to predict.

    Without a target it ends in `<ML>`. With one it goes on with the state, `</TURN>` and `</s>`.
    """

    ids_L: Tensor
    """int64"""
    query_mask_L: Tensor
    """bool: the frame tokens of the last turn."""
    history_mask_L: Tensor
    """bool: frame tokens whose embeddings give way to past shot tokens."""
    history_LD: Tensor | None
    """The past turns' shot tokens one after the other, a row for each True of `history_mask_L`; None without past."""
    state_slots: tuple[int, ...]
    """Positions whose logits predict the state: of `<ML>`, and with a target also of `<SC>`, `<ET>` and `<ST>`."""
    target: State | None


def shipped_tokenizer() -> LlamaTokenizer:
    """Mistral 7B's tokenizer, from the SentencePiece file that the mistral-common package ships, and our 284 tokens."""
    shipped = importlib.resources.files("mistral_common") / "data" / "tokenizer.model.v1"
    with importlib.resources.as_file(shipped) as file, tempfile.TemporaryDirectory() as folder:
        shutil.copyfile(file, Path(folder) / "tokenizer.model")
        return load_mistral_tokenizer(folder)


def load_mistral_tokenizer(folder_or_id: str | Path) -> LlamaTokenizer:
    """Mistral 7B's tokenizer with the 284 tokens at their ids.

    Reads a hub id, a folder in hub format, or what `save_pretrained` of an earlier result wrote. ValueError if another
    vocabulary lies there.
    """
    tokenizer: LlamaTokenizer = LlamaTokenizer.from_pretrained(
        str(folder_or_id), legacy=False, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<unk>"
    )
    brackets = {*_MEDIA, *_STATE}
    tokenizer.add_tokens([AddedToken(t, special=t in brackets, normalized=t not in brackets) for t in ADDED_TOKENS])
    ids = tokenizer.convert_tokens_to_ids(["<unk>", "<s>", "</s>", *ADDED_TOKENS])
    if len(tokenizer) != VOCABULARY or ids != [PAD, BOS, EOS, *ID_OF.values()]:
        raise ValueError(
            f"{folder_or_id}: not the tokenizer of Mistral 7B v0.1: {len(tokenizer)} tokens where {VOCABULARY} are "
            f"expected, or some at other ids; name the folder or hub id of Mistral-7B-Instruct-v0.1"
        )
    return tokenizer


def instruction_ids(tokenizer: LlamaTokenizer, instruction: str) -> list[int]:
    """The ids of an instruction as it stands after `<TURN>`: pieces of Mistral's own vocabulary only.

    White space and control characters become single spaces. UserError when nothing is left, or over 200 ids.
    """
    printable = "".join(" " if unicodedata.category(c) in ("Cc", "Cs") else c for c in instruction)
    text = " ".join(printable.split())
    if not text:
        raise UserError("the instruction is empty: say what happens, such as `Qiqi runs along the beach at dusk`")
    # The bare model: no added token is matched, and no space is put before the text.
    ids = [piece.id for piece in tokenizer.backend_tokenizer.model.tokenize(text.replace(" ", "▁"))]
    if len(ids) > MOST_INSTRUCTION_TOKENS:
        raise UserError(f"the instruction has {len(ids)} tokens, at most {MOST_INSTRUCTION_TOKENS} fit: shorten it")
    return ids


def write_prompt(
    tokenizer: LlamaTokenizer,
    past: Sequence[PastTurn],
    instruction: str,
    shot_tokens: int,
    conventions: Conventions,
    target: State | None = None,
) -> TokenPrompt:
    """Writes past turns and the next one.

    Args:
        tokenizer: from `load_mistral_tokenizer` or `shipped_tokenizer`.
        past: the turns to remember, oldest first; the caller keeps them to the window.
        instruction: of the turn to predict.
        shot_tokens: tokens of a shot, 226 at full size; every past turn has as many.
        conventions: whether past turns end in a doubled `</ST>`.
        target: the state to learn; None to play.

    Raises:
        UserError: an empty or overlong instruction.
        ValueError: past shot tokens of another number.
    """
    ids = [BOS]
    history: list[int] = []
    for turn in past:
        if len(turn.shot_tokens_LD) != shot_tokens:
            raise ValueError(f"a past turn has {len(turn.shot_tokens_LD)} shot tokens, this model {shot_tokens}")
        start = _open_turn(ids, instruction_ids(tokenizer, turn.instruction), shot_tokens)
        history += range(start, start + shot_tokens)
        _close_turn(ids, turn.state, doubled_end_tag=conventions.doubled_end_tag)
    start = _open_turn(ids, instruction_ids(tokenizer, instruction), shot_tokens)
    if target is None:
        slots = [len(ids)]
        ids.append(STATE_TAGS[0][0])
    else:
        slots = _close_turn(ids, target, doubled_end_tag=False)
        ids.append(EOS)
    places = torch.arange(len(ids))
    return TokenPrompt(
        ids_L=torch.tensor(ids),
        query_mask_L=(places >= start) & (places < start + shot_tokens),
        history_mask_L=torch.isin(places, torch.tensor(history, dtype=torch.long)),
        history_LD=torch.cat([turn.shot_tokens_LD for turn in past]) if past else None,
        state_slots=tuple(slots),
        target=target,
    )


def _open_turn(ids: list[int], instruction: list[int], shot_tokens: int) -> int:
    """Writes a turn as far as `</img>`; the place of its first frame token."""
    ids += [TURN, *instruction, IMG, FRAME]
    start = len(ids)
    ids += [*range(FIRST_FRAME, FIRST_FRAME + shot_tokens), END_FRAME, END_IMG]
    return start


def _close_turn(ids: list[int], state: State, doubled_end_tag: bool) -> list[int]:
    """Writes the state and `</TURN>`; the places of the four opening tags."""
    slots = []
    for (opening, closing), value in zip(STATE_TAGS, state.ids, strict=True):
        slots.append(len(ids))
        ids += [opening, value, closing]
    if doubled_end_tag:
        ids.append(STATE_TAGS[-1][1])
    ids.append(END_TURN)
    return slots
