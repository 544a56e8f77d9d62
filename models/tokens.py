"""Vocabulary and prompts of the game model: Mistral's tokenizer with 284 added tokens, and turns written in it.

A turn is `<TURN>instruction<img><frame>queries</frame></img><ML>k</ML><SC>k</SC><ET>k</ET><ST>k</ST></TURN>`: motion
level, social, entertainment and stamina change, each one `<Strength_k>` token. The frame tokens of a finished turn are
placeholders for its shot tokens. In the turn to predict, they are the learned queries.

Instructions are data. The byte-pair model alone encodes them, without the added tokens, so a player's text cannot open
or close a tag. Vocabulary and turn format come from the released game model (arXiv 2504.01014).

Shapes: L positions of a prompt or shot tokens of one turn, D width of a shot token.
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
"""Added tokens in the order of their ids, which start at 32000. `<vid>` and `<visual>` are unused but have ids."""

VOCABULARY = MISTRAL_VOCABULARY + len(ADDED_TOKENS)
ID_OF = {token: MISTRAL_VOCABULARY + place for place, token in enumerate(ADDED_TOKENS)}

FIRST_FRAME = ID_OF["<frame_00000>"]
ZERO_STRENGTH = ID_OF["<Strength_0>"]
TURN, END_TURN = ID_OF["<TURN>"], ID_OF["</TURN>"]
IMG, END_IMG = ID_OF["<img>"], ID_OF["</img>"]
FRAME, END_FRAME = ID_OF["<frame>"], ID_OF["</frame>"]
STATE_TAGS = tuple((ID_OF[f"<{name}>"], ID_OF[f"</{name}>"]) for name in ("ML", "SC", "ET", "ST"))
"""Opening and closing tag of the four state slots, in prompt order."""


TRUNK = -1
"""Branch of the tokens that all later tokens see."""
UNKNOWN = PAD
"""Id for a state that nobody measured; only in training."""
MEASURED = (True, True, True, True)
"""All four values of a state are known."""

LEGAL_VALUES = {"level": (1, 2, 3, 4, 5), "social": (0, 1), "entertainment": (0, 1), "stamina": (-1, 1)}
LEGAL_IDS = tuple(tuple(ZERO_STRENGTH + value for value in legal) for legal in LEGAL_VALUES.values())


@dataclass(frozen=True)
class State:
    """State of a turn: motion level and the changes of the three character values.

    Fields are in prompt order. A value outside its range is a ValueError.
    """

    level: int
    """Motion level, 1 to 5."""
    social: int
    """Change of the social value, 0 or 1."""
    entertainment: int
    """Change of the entertainment value, 0 or 1."""
    stamina: int
    """Change of the stamina value, -1 or 1."""

    def __post_init__(self) -> None:
        for (name, legal), value in zip(LEGAL_VALUES.items(), self.values, strict=True):
            if value not in legal:
                raise ValueError(f"{name} of a state is one of {', '.join(map(str, legal))}, not {value!r}")

    @property
    def values(self) -> tuple[int, int, int, int]:
        """The four values in prompt order."""
        return self.level, self.social, self.entertainment, self.stamina

    @property
    def ids(self) -> tuple[int, ...]:
        """The four `<Strength_k>` ids in prompt order."""
        return tuple(ZERO_STRENGTH + int(value) for value in self.values)

    @classmethod
    def from_ids(cls, ids: Sequence[int]) -> Self:
        """Convert four `<Strength_k>` ids to a state; ValueError for illegal ids."""
        level, social, entertainment, stamina = (identifier - ZERO_STRENGTH for identifier in ids)
        return cls(level, social, entertainment, stamina)


@dataclass(frozen=True, eq=False)
class PastTurn:
    """A finished turn in the game model's history."""

    instruction: str
    shot_tokens_LD: Tensor
    state: State
    measured: tuple[bool, ...] = MEASURED
    """False for a value of the state that is not known, in prompt order; it is hidden from the game model."""

    def __post_init__(self) -> None:
        if self.shot_tokens_LD.ndim != 2 or not self.shot_tokens_LD.is_floating_point():
            actual = f"{self.shot_tokens_LD.dtype} of shape {tuple(self.shot_tokens_LD.shape)}"
            raise ValueError(f"shot_tokens_LD of a past turn is a float matrix, not {actual}")


@dataclass(frozen=True, eq=False)
class TokenPrompt:
    """Input sequence of the game model: past turns and the turn to predict.

    Without a target it ends in `<ML>`. With a target it continues with the state, `</TURN>` and `</s>`. A packed prompt
    has a target in every turn (`write_packed_prompt`).
    """

    ids_L: Tensor
    """Token ids, int64."""
    query_mask_L: Tensor
    """Mask of the queries, the frame tokens of the turns to predict; bool."""
    history_mask_L: Tensor
    """Mask of the frame tokens of past turns, whose embeddings are replaced by past shot tokens; bool."""
    history_LD: Tensor | None
    """Concatenated shot tokens of the past turns, a row per True in `history_mask_L`; None without past turns."""
    positions_L: Tensor
    """Position of each token in its turn's own prompt, int64; 0 to L - 1 unless the prompt is packed."""
    branches_L: Tensor
    """Number of the target that a token belongs to alone, or `TRUNK` for a token that all later tokens see; int64."""
    state_slots: tuple[int, ...]
    """Places whose logits predict the state: `<ML>`, and with a target also `<SC>`, `<ET>` and `<ST>` of each."""
    targets: tuple[State, ...]
    """States to learn; none in play."""


def shipped_tokenizer() -> LlamaTokenizer:
    """Mistral 7B's tokenizer with the 284 tokens, from the SentencePiece file in the mistral-common package."""
    shipped = importlib.resources.files("mistral_common") / "data" / "tokenizer.model.v1"
    with importlib.resources.as_file(shipped) as file, tempfile.TemporaryDirectory() as folder:
        shutil.copyfile(file, Path(folder) / "tokenizer.model")
        return load_mistral_tokenizer(folder)


def load_mistral_tokenizer(folder_or_id: str | Path) -> LlamaTokenizer:
    """Mistral 7B's tokenizer with the 284 tokens at their ids.

    Reads a hub id, a folder in hub format, or a folder written by `save_pretrained`. ValueError for another vocabulary.
    """
    tokenizer: LlamaTokenizer = LlamaTokenizer.from_pretrained(
        str(folder_or_id), legacy=False, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<unk>"
    )
    brackets = {*_MEDIA, *_STATE}
    tokenizer.add_tokens([AddedToken(t, special=t in brackets, normalized=t not in brackets) for t in ADDED_TOKENS])
    ids = tokenizer.convert_tokens_to_ids(["<unk>", "<s>", "</s>", *ADDED_TOKENS])
    if len(tokenizer) != VOCABULARY or ids != [PAD, BOS, EOS, *ID_OF.values()]:
        raise ValueError(
            f"{folder_or_id} is not the tokenizer of Mistral 7B v0.1, with {len(tokenizer)} tokens instead of "
            f"{VOCABULARY}, or other ids; name the folder or hub id of Mistral-7B-Instruct-v0.1"
        )
    return tokenizer


def instruction_ids(tokenizer: LlamaTokenizer, instruction: str) -> list[int]:
    """Encode an instruction as it follows `<TURN>`, in pieces of Mistral's vocabulary without the added tokens.

    White space and control characters become single spaces. UserError when the result is empty or exceeds 200 ids.
    """
    printable = "".join(" " if unicodedata.category(c) in ("Cc", "Cs") else c for c in instruction)
    text = " ".join(printable.split())
    if not text:
        raise UserError("the instruction is empty: say what happens, such as `run along the beach at dusk`")
    # The byte-pair model alone: it matches no added token and prepends no space.
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
    measured: Sequence[bool] = MEASURED,
) -> TokenPrompt:
    """Write the prompt of past turns and the next turn.

    Args:
        past: the turns in the history, oldest first; the caller limits them to the window.
        shot_tokens: tokens per shot, 226 at full size, the same in every past turn.
        conventions: of the checkpoint; `doubled_end_tag` doubles the `</ST>` of past turns.
        target: the state to learn in training; None in play.
        measured: False for an unknown value of the target: the values after it do not see it.

    Raises:
        UserError: an instruction is empty or too long.
        ValueError: a past turn has another number of shot tokens.
    """
    ids = [BOS]
    history: list[int] = []
    for turn in past:
        if len(turn.shot_tokens_LD) != shot_tokens:
            raise ValueError(f"a past turn has {len(turn.shot_tokens_LD)} shot tokens, this model {shot_tokens}")
        _open_turn(ids, instruction_ids(tokenizer, turn.instruction))
        history += _add_frames(ids, shot_tokens)
        _close_turn(ids, turn.state, turn.measured, doubled_end_tag=conventions.doubled_end_tag)
    _open_turn(ids, instruction_ids(tokenizer, instruction))
    queries = _add_frames(ids, shot_tokens)
    if target is None:
        slots = [len(ids)]
        ids.append(STATE_TAGS[0][0])
    else:
        slots = _close_turn(ids, target, measured, doubled_end_tag=False)
        ids.append(EOS)
    return TokenPrompt(
        ids_L=torch.tensor(ids),
        query_mask_L=_mask(queries, len(ids)),
        history_mask_L=_mask(history, len(ids)),
        history_LD=torch.cat([turn.shot_tokens_LD for turn in past]) if past else None,
        positions_L=torch.arange(len(ids)),
        branches_L=torch.full((len(ids),), TRUNK),
        state_slots=tuple(slots),
        targets=() if target is None else (target,),
    )


def write_packed_prompt(
    tokenizer: LlamaTokenizer, turns: Sequence[PastTurn], shot_tokens: int, conventions: Conventions
) -> TokenPrompt:
    """Write a training prompt in which every turn is a target after the turns before it.

    A turn stands there twice from its frame tokens on: first with queries, up to `<ST>`, as the branch of its target,
    then with its shot tokens, as past. Both have the same positions. A later turn sees the past only, so each target
    sees exactly the tokens and positions of the prompt that `write_prompt` writes for it.

    Args:
        turns: oldest first; the shot tokens of the last one are not read.

    Raises:
        UserError: an instruction is empty or too long.
    """
    ids, positions, branches = [BOS], [0], [TRUNK]
    queries: list[int] = []
    history: list[int] = []
    slots: list[int] = []

    def number_from(position: int, branch: int) -> None:
        added = len(ids) - len(positions)
        positions.extend(range(position, position + added))
        branches.extend([branch] * added)

    for number, turn in enumerate(turns):
        # 1. The instruction, which the target and all later turns see.
        _open_turn(ids, instruction_ids(tokenizer, turn.instruction))
        number_from(positions[-1] + 1, TRUNK)
        frames_at = positions[-1] + 1
        # 2. The target: queries, and the state up to its last slot.
        queries += _add_frames(ids, shot_tokens)
        slots += _close_turn(ids, turn.state, turn.measured, doubled_end_tag=False)
        del ids[slots[-1] + 1 :]
        number_from(frames_at, number)
        # 3. The same turn as past of the later ones, at the positions of the target.
        if number < len(turns) - 1:
            history += _add_frames(ids, shot_tokens)
            _close_turn(ids, turn.state, turn.measured, doubled_end_tag=conventions.doubled_end_tag)
            number_from(frames_at, TRUNK)
    return TokenPrompt(
        ids_L=torch.tensor(ids),
        query_mask_L=_mask(queries, len(ids)),
        history_mask_L=_mask(history, len(ids)),
        history_LD=torch.cat([turn.shot_tokens_LD for turn in turns[:-1]]) if history else None,
        positions_L=torch.tensor(positions),
        branches_L=torch.tensor(branches),
        state_slots=tuple(slots),
        targets=tuple(turn.state for turn in turns),
    )


def _mask(places: Sequence[int], length: int) -> Tensor:
    mask_L = torch.zeros(length, dtype=torch.bool)
    mask_L[list(places)] = True
    return mask_L


def _open_turn(ids: list[int], instruction: list[int]) -> None:
    """Append a turn up to `<frame>`."""
    ids += [TURN, *instruction, IMG, FRAME]


def _add_frames(ids: list[int], shot_tokens: int) -> range:
    """Append the frame tokens and `</img>`; return the places of the frame tokens."""
    start = len(ids)
    ids += [*range(FIRST_FRAME, FIRST_FRAME + shot_tokens), END_FRAME, END_IMG]
    return range(start, start + shot_tokens)


def _close_turn(ids: list[int], state: State, measured: Sequence[bool], *, doubled_end_tag: bool) -> list[int]:
    """Append the state and `</TURN>`; return the places of the four opening tags."""
    slots = []
    for (opening, closing), value, known in zip(STATE_TAGS, state.ids, measured, strict=True):
        slots.append(len(ids))
        ids += [opening, value if known else UNKNOWN, closing]
    if doubled_end_tag:
        ids.append(STATE_TAGS[-1][1])
    ids.append(END_TURN)
    return slots
