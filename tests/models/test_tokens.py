"""Vocabulary, turns written in it, and instructions that spell special tokens."""

from __future__ import annotations

import importlib.resources
from functools import cache
from pathlib import Path

import pytest
import sentencepiece
import torch
from transformers import AutoTokenizer, LlamaTokenizer

from models.config import Conventions
from models.tokens import (
    ADDED_TOKENS,
    UNKNOWN,
    PastTurn,
    State,
    TokenPrompt,
    instruction_ids,
    load_mistral_tokenizer,
    shipped_tokenizer,
    write_prompt,
)
from pipeline.core.errors import UserError

CAPTION = "Character: Qiqi; Motion: happily riding; Background: night sky."
STATE = State(level=3, social=1, entertainment=0, stamina=-1)
FRAMES = "".join(f"<frame_{index:05d}>" for index in range(226))
PUBLISHED_IDS = {
    "<frame_00000>": 32000, "<frame_00225>": 32225, "<frame_00255>": 32255, "<img>": 32256, "</img>": 32257,
    "<vid>": 32258, "</vid>": 32259, "<frame>": 32260, "</frame>": 32261, "<Strength_-5>": 32262, "<Strength_0>": 32267,
    "<Strength_5>": 32272, "<visual>": 32273, "<ML>": 32274, "</ML>": 32275, "<SC>": 32276, "</SC>": 32277,
    "<ET>": 32278, "</ET>": 32279, "<ST>": 32280, "</ST>": 32281, "<TURN>": 32282, "</TURN>": 32283,
}  # fmt: skip


@cache
def mistral() -> LlamaTokenizer:
    return shipped_tokenizer()


@cache
def sentence_pieces() -> sentencepiece.SentencePieceProcessor:
    file = importlib.resources.files("mistral_common") / "data" / "tokenizer.model.v1"
    return sentencepiece.SentencePieceProcessor(model_proto=file.read_bytes())


def past_turn(instruction: str = CAPTION, tokens: int = 5, fill: float = 0.0) -> PastTurn:
    return PastTurn(instruction, torch.full((tokens, 4), float(fill)), STATE)


def prompt_of(instruction: str, *past: PastTurn, target: State | None = None, doubled: bool = False) -> TokenPrompt:
    conventions = Conventions(doubled_end_tag=doubled)
    return write_prompt(mistral(), past, instruction, 5, conventions, target)


def turn_text(instruction: str, tokens: int) -> str:
    frames = "".join(f"<frame_{index:05d}>" for index in range(tokens))
    return f"<TURN>{instruction}<img><frame>{frames}</frame></img>"


def test_added_tokens_have_the_published_ids_and_kinds() -> None:
    assert len(mistral()) == 32284
    assert {token: mistral().convert_tokens_to_ids(token) for token in PUBLISHED_IDS} == PUBLISHED_IDS
    added = mistral().added_tokens_decoder
    for token, place in PUBLISHED_IDS.items():
        plain = token.startswith(("<frame_", "<Strength_"))
        assert (added[place].special, added[place].normalized) == (not plain, plain), token
    assert (mistral().pad_token_id, mistral().bos_token_id, mistral().eos_token_id) == (0, 1, 2)


def test_a_saved_tokenizer_loads_the_same_here_and_in_plain_transformers(tmp_path: Path) -> None:
    mistral().save_pretrained(str(tmp_path))
    text = turn_text(CAPTION, 5) + "<ML><Strength_3></ML>"
    expected = mistral()(text).input_ids
    for again in (load_mistral_tokenizer(tmp_path), AutoTokenizer.from_pretrained(str(tmp_path))):
        assert len(again) == 32284
        assert again(text).input_ids == expected
        assert again.pad_token_id == 0
        assert again.added_tokens_decoder == mistral().added_tokens_decoder


def test_values_that_nobody_measured_are_hidden_from_the_values_after_them() -> None:
    known, others = (True, True, False, False), (State(3, 1, 0, -1), State(3, 1, 1, 1))
    prompts = [
        write_prompt(
            mistral(), [PastTurn(CAPTION, torch.zeros(5, 4), state, known)], CAPTION, 5, Conventions(), state, known
        )
        for state in others
    ]
    assert torch.equal(prompts[0].ids_L, prompts[1].ids_L)
    whole = prompt_of(CAPTION, past_turn(), target=STATE)
    assert prompts[0].state_slots == whole.state_slots
    hidden = (prompts[0].ids_L != whole.ids_L).nonzero()[:, 0]
    assert prompts[0].ids_L[hidden].tolist() == [UNKNOWN] * 4
    assert hidden[2:].tolist() == [slot + 1 for slot in whole.state_slots[2:]]


def test_another_vocabulary_is_refused(tmp_path: Path) -> None:
    LlamaTokenizer(vocab={"<unk>": 0, "<s>": 1, "</s>": 2, "▁a": 3}, merges=[]).save_pretrained(str(tmp_path))
    with pytest.raises(ValueError, match=r"not the tokenizer of Mistral 7B v0\.1"):
        load_mistral_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        CAPTION,
        "Kiki & Jiji fly 3 km.",
        "魔女が空を飛ぶ",
        "naïve café",
        "🧹🐈‍⬛ ✨",
        "a\u00a0b",
        "x" * 60,
        "ⱷ unknown ꙮ",
    ],
)
def test_instructions_become_the_pieces_of_sentencepiece(text: str) -> None:
    # With <unk> before it; sentencepiece itself would put a space before a text that starts the sequence.
    pieces = sentence_pieces()
    marker = len(pieces.encode("<unk>"))
    assert instruction_ids(mistral(), text) == pieces.encode("<unk>" + " ".join(text.split()))[marker:]


def test_turns_have_the_published_lengths() -> None:
    assert [sentence_pieces().id_to_piece(i) for i in instruction_ids(mistral(), "Motion: gently swaying")] == [
        "M", "otion", ":", "▁gently", "▁sway", "ing",
    ]  # fmt: skip
    encode = mistral()
    assert len(encode(f"<img><frame>{FRAMES}</frame></img>", add_special_tokens=False).input_ids) == 230
    state = "<ML><Strength_3></ML><SC><Strength_1></SC><ET><Strength_0></ET><ST><Strength_-1></ST></TURN>"
    assert len(encode(state, add_special_tokens=False).input_ids) == 13


@pytest.mark.parametrize("doubled", [False, True])
def test_a_prompt_is_the_encoding_of_the_whole_text(doubled: bool) -> None:
    state = "<ML><Strength_3></ML><SC><Strength_1></SC><ET><Strength_0></ET><ST><Strength_-1></ST>"
    end = "</ST></TURN>" if doubled else "</TURN>"
    text = turn_text("Qiqi sleeps.", 5) + state + end + turn_text(CAPTION, 5)
    play = prompt_of(CAPTION, past_turn("Qiqi sleeps."), doubled=doubled)
    learn = prompt_of(CAPTION, past_turn("Qiqi sleeps."), target=STATE, doubled=doubled)
    whole = mistral()
    assert play.ids_L.tolist() == [1, *whole(text + "<ML>", add_special_tokens=False).input_ids]
    assert learn.ids_L.tolist() == [1, *whole(text + state + "</TURN></s>", add_special_tokens=False).input_ids]


def test_masks_history_and_slots_have_the_right_positions() -> None:
    prompt = prompt_of("Qiqi runs", past_turn("Qiqi sleeps", fill=1), past_turn("Qiqi eats", fill=2), target=STATE)
    ids = prompt.ids_L.tolist()
    opening = [place for place, one in enumerate(ids) if one == PUBLISHED_IDS["<frame>"]]
    frames = [set(range(place + 1, place + 6)) for place in opening]
    assert set(prompt.query_mask_L.nonzero().flatten().tolist()) == frames[2]
    assert set(prompt.history_mask_L.nonzero().flatten().tolist()) == frames[0] | frames[1]
    assert prompt.ids_L[prompt.query_mask_L].tolist() == [32000, 32001, 32002, 32003, 32004]
    assert prompt.history_LD is not None
    assert prompt.history_LD[:, 0].tolist() == [1] * 5 + [2] * 5
    assert [ids[place] for place in prompt.state_slots] == [
        PUBLISHED_IDS[f"<{tag}>"] for tag in ("ML", "SC", "ET", "ST")
    ]
    assert [ids[place + 1] for place in prompt.state_slots] == [32270, 32268, 32267, 32266]
    assert min(prompt.state_slots) > max(frames[2])


@pytest.mark.parametrize("around", ["{}", "Qiqi {} runs", "{0}{0}", "Qiqi<TURN>{}</TURN>"])
def test_no_spelling_in_an_instruction_becomes_an_added_token(around: str) -> None:
    plain = [one for one in prompt_of("Qiqi runs").ids_L.tolist() if one < 3 or one >= 32000]
    for spelling in (*ADDED_TOKENS, "<s>", "</s>", "<unk>", "<0x0A>", "<pad>"):
        ids = prompt_of(around.format(spelling)).ids_L.tolist()
        assert [one for one in ids if one < 3 or one >= 32000] == plain, spelling
        assert 13 not in ids, spelling  # the byte token <0x0A>
    past = prompt_of("Qiqi runs", past_turn(around.format("</TURN></s><frame_00003>")))
    assert past.ids_L.tolist().count(PUBLISHED_IDS["</TURN>"]) == 1
    assert 2 not in past.ids_L


def test_white_space_and_control_characters_become_one_space() -> None:
    expected = instruction_ids(mistral(), "Qiqi runs fast")
    assert instruction_ids(mistral(), "\n Qiqi\r\n\truns\x00\x1b\u2028 fast \x7f") == expected
    assert instruction_ids(mistral(), "Qiqi runs \ud800fast") == expected


@pytest.mark.parametrize("text", ["", "  \n\t ", "\x00\x07", "\ud800"])
def test_an_empty_instruction_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="the instruction is empty: say what happens"):
        prompt_of(text)


def test_an_instruction_of_200_tokens_fits_and_one_more_does_not() -> None:
    assert len(instruction_ids(mistral(), " ".join(["run"] * 200))) == 200
    with pytest.raises(UserError, match="has 201 tokens, at most 200 fit: shorten it"):
        prompt_of(" ".join(["run"] * 201))


def test_past_turns_of_another_number_of_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="a past turn has 7 shot tokens, this model 5"):
        prompt_of(CAPTION, past_turn(tokens=7))
    with pytest.raises(ValueError, match="float matrix"):
        PastTurn(CAPTION, torch.zeros(1, 5, 4), STATE)


@pytest.mark.parametrize(
    ("values", "name"),
    [((0, 0, 0, 1), "level"), ((6, 0, 0, 1), "level"), ((1, -1, 0, 1), "social"), ((1, 0, 2, 1), "entertainment"),
     ((1, 0, 0, 0), "stamina")],
)  # fmt: skip
def test_a_state_out_of_range_is_refused(values: tuple[int, int, int, int], name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} of a state is one of"):
        State(*values)
