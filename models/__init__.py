"""The AnimeGamer networks, their checkpoints, and the game they play."""

import logging

# peft imports bitsandbytes if it is installed. On a CPU with bfloat16, it then asks for a package that we do not need.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
