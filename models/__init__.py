"""The AnimeGamer networks, their checkpoints, and the game they play."""

import logging

# Imported by peft where it is installed; on a CPU with bfloat16 it asks for a package that we have no use for.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
