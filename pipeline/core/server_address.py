"""Validation of model server addresses, when the settings are read and again in the client.

Settings are shown, stored in `dataset.json` and passed to a scheduler's database. So an address that carries a secret
must be rejected before any of that, and no error message repeats the address.
"""

from __future__ import annotations

import httpx


def checked_address(address: str) -> httpx.URL:
    """Return the address as a URL that relative paths can be joined to.

    Raises:
        ValueError: it carries a password or query, or is not the address of an HTTP server. The message is a sentence
            without its subject, the address.
    """
    if set(address) & set("@?#"):  # anywhere in it: a password with a slash looks like a path
        raise ValueError("carries a password or query; put the key into the variable that `api_key_env` names")
    try:
        url = httpx.URL(address.rstrip("/") + "/")
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("is not an address such as http://127.0.0.1:23333/v1")
    return url
