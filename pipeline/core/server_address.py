"""Which addresses of a model server are taken: checked when the settings are read and again by the client.

Settings are shown, stored in `dataset.json` and passed to a scheduler's database. So an address that carries a secret
must be refused before any of that, and no refusal repeats the address.
"""

from __future__ import annotations

import httpx


def checked_address(address: str) -> httpx.URL:
    """The address as a URL that relative paths can be joined to.

    Raises:
        ValueError: it carries a password or query, or is no address of an HTTP server; the message goes on from a name
            for the address and does not repeat any of it.
    """
    if set(address) & set("@?#"):  # wherever they stand: a password with a slash in it looks like a path
        raise ValueError("carries a password or query; put the key into the variable that `api_key_env` names")
    try:
        url = httpx.URL(address.rstrip("/") + "/")
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("is not an address such as http://127.0.0.1:23333/v1")
    return url
