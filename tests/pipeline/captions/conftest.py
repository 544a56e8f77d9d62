"""Cast of two, shared by the tests of captions."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.captions.cast import Cast
from tests.support.media.painted_clips import make_cast


@pytest.fixture
def cast(tmp_path: Path) -> Cast:
    return make_cast(tmp_path / "cast", "Ponyo", "Sosuke")
