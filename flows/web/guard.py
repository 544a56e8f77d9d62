"""Request guard: ASGI middleware against DNS rebinding and cross-origin requests; adds the content policy.

The server listens on the loopback address, but a browser on this machine sends it the requests of any web page. A
foreign page can resolve its own host name to 127.0.0.1 (DNS rebinding), so the Host header must name this machine; and
it can send cross-origin requests, so every request that changes anything must come from our own origin.

A server in a local network (`--lan`) has one address as its only host. Everything else holds there too, but anyone in
that network can reach the server: its pages need a secret of their own.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
MAX_BODY_BYTES = 64 * 1024
SAFE_METHODS = {"GET", "HEAD"}

POLICY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every reply: the page may load and talk to its own server only, and no other page may show or read it."""
OWN_WINDOW = {"Cross-Origin-Opener-Policy": "same-origin"}
"""Header on the loopback address only: elsewhere a browser ignores it without encryption, and logs an error."""


class Guard:
    """ASGI middleware that refuses foreign requests and adds the policy headers to every reply.

    Args:
        app: application behind it.
        hosts: names and addresses, without a port, by which the server may be asked.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] = LOOPBACK) -> None:
        self.app = app
        self.hosts = hosts
        self.policy = POLICY | OWN_WINDOW if hosts == LOOPBACK else POLICY

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it with a refusal."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(self.policy)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = refusal(scope["method"], Headers(scope=scope), self.hosts)
        if refused is None:
            await self.app(scope, receive, send_with_policy)
        else:
            await _answer(*refused, send_with_policy)


def refusal(method: str, headers: Headers, hosts: Collection[str] = LOOPBACK) -> tuple[int, str] | None:
    """Return status and reason if the request is refused, else None."""
    host = headers.get("host", "")
    if host.rpartition(":")[0] not in hosts and host not in hosts:
        if hosts == LOOPBACK:
            return 421, "This page is for this machine only: open it as http://127.0.0.1 with its port."
        return 421, "Open this page by the address in your link."
    if method in SAFE_METHODS:
        return None
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
    if origin not in (None, f"http://{host}") or site not in ("same-origin", "none"):
        return 403, "Another page may not do this."
    if "transfer-encoding" in headers:
        return 411, "The request must state its length."
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
        return 413, "The request is too large."
    return None


async def _answer(status: int, message: str, send: Send) -> None:
    body = json.dumps({"message": message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
