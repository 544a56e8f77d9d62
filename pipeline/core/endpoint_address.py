"""Address of a model server, and the name of the variable with its key, as settings that may be shown and stored."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, WithJsonSchema

if TYPE_CHECKING:
    import httpx

_VARIABLE_NAME = "[A-Z_][A-Z0-9_]*"


def _no_key(name: str) -> str:
    """Accept capitals only: a key entered here by mistake would be stored."""
    if name and not re.fullmatch(_VARIABLE_NAME, name):
        raise ValueError("is not the name of an environment variable in capitals; put the key into such a variable")
    return name


def checked_address(address: str) -> httpx.URL:
    """Return the address of a model server as a URL that relative paths can be joined to.

    Settings are shown, stored in `dataset.json` and passed to a scheduler's database. So an address that carries a
    secret must be rejected before any of that, and no error message repeats the address.

    Raises:
        ValueError: it carries a password or query, or is not the address of an HTTP server. The message is a sentence
            without its subject, the address.
    """
    import httpx  # slow, and needed only when an endpoint is set

    if set(address) & set("@?#"):  # anywhere in it: a password with a slash looks like a path
        raise ValueError("carries a password or query; put the key into the variable that `api_key_env` names")
    try:
        url = httpx.URL(address.rstrip("/") + "/")
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("is not an address such as http://127.0.0.1:23333/v1")
    return url


def _without_secrets(address: str) -> str:
    checked_address(address)
    return address


_ENDPOINT_SCHEMA = {"type": "string", "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://[^@?#]+$"}
"""JSON schema of the same rule, for a Prefect server that checks parameters before it stores them."""
EndpointAddress = Annotated[str, AfterValidator(_without_secrets), WithJsonSchema(_ENDPOINT_SCHEMA)]
VariableName = Annotated[
    str, AfterValidator(_no_key), WithJsonSchema({"type": "string", "pattern": f"^({_VARIABLE_NAME})?$"})
]
