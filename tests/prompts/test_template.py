"""Prompt templates: strict placeholders, and an identity that follows the text."""

from __future__ import annotations

import pytest

from prompts.tags import EXAMPLE, format_what
from prompts.template import load_prompt, parse_prompt

HEAD = "---\nname: greet\nversion: 3\n---\n"


def test_values_fill_the_placeholders_and_bring_in_none() -> None:
    prompt = parse_prompt(HEAD + "Hello ${name}, you owe $$${sum}.", "greet")
    assert prompt.render(name="Ponyo", sum=5) == "Hello Ponyo, you owe $5."
    prompt = parse_prompt(HEAD + "${first} ${second}", "greet")
    assert prompt.render(first="${second} $second {second}", second="x") == "${second} $second {second} x"


def test_missing_and_unknown_values_are_errors() -> None:
    for values, complaint in (({}, "no value for name"), ({"name": "a", "age": 3}, "no placeholder age")):
        with pytest.raises(ValueError, match=complaint):
            parse_prompt(HEAD + "Hello ${name}", "greet").render(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", ["Hello", "---\nname: greet\nversion: 0\n---\nHello", HEAD, HEAD + "5 $ and ${"])
def test_malformed_files_are_refused(source: str) -> None:
    with pytest.raises(ValueError, match="prompt greet"):
        parse_prompt(source, "greet")
    with pytest.raises(ValueError, match="calls it greet"):
        parse_prompt(HEAD + "Hello", "what")
    with pytest.raises(ValueError, match=r"no nonsense\.md"):
        load_prompt("nonsense")


def test_identity_changes_with_the_text_and_with_the_version() -> None:
    one = parse_prompt(HEAD + "Hello", "greet")
    other_text = parse_prompt(HEAD + "Hallo", "greet")
    other_version = parse_prompt(HEAD.replace("3", "4") + "Hello", "greet")
    same = parse_prompt((HEAD + "Hello\n\n").replace("\n", "\r\n"), "greet")
    assert one.identity == same.identity
    assert len({one.identity, other_text.identity, other_version.identity}) == 3


def test_the_packaged_prompts_render() -> None:
    who = load_prompt("who").render(count=2, cast="1 = Ponyo\n2 = Sosuke")
    actor = load_prompt("actor").render(names="Ponyo, Sosuke")
    what = load_prompt("what").render(frames=8, level=4, actor=f"{actor}\n", example=format_what(EXAMPLE))
    assert "2 = Sosuke" in who
    assert "[Number]0[Index]0[Others]0" in who
    assert "found in the clip: Ponyo, Sosuke." in what
    assert "this clip is 4" in what
    assert format_what(EXAMPLE) in what
    assert "$" not in who + what
