"""The headers of proxies: believed if the request comes from the address of a proxy, and removed otherwise.

    X-Forwarded-For, X-Forwarded-Proto       the address of the visitor, and whether it is encrypted
    X-Forwarded-Host, X-Forwarded-Prefix     the name and the path under which the visitor reaches the console

Any visitor can send such headers, and so seem to be another one at each attempt to log in.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

HEADERS: Final = frozenset(
    {b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"x-forwarded-prefix", b"forwarded"}
)


class TrustedProxies:
    """An ASGI application before another one.

    Args:
        proxies: addresses and networks; of requests from elsewhere the headers are removed.
    """

    def __init__(self, app: ASGIApp, proxies: Sequence[str]) -> None:
        self._app = app
        self._networks = [ip_network(each) for each in proxies]
        self._behind_proxy = ProxyHeadersMiddleware(app, trusted_hosts=list(proxies))  # type: ignore[arg-type]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif self._is_proxy(scope):
            await self._behind_proxy(scope, receive, send)  # type: ignore[arg-type]
        else:
            headers = [(name, value) for name, value in scope["headers"] if name.lower() not in HEADERS]
            await self._app({**scope, "headers": headers}, receive, send)

    def _is_proxy(self, scope: Scope) -> bool:
        host = (scope.get("client") or ("", 0))[0]
        try:
            peer = ip_network(host)
        except ValueError:
            return False
        return any(each.version == peer.version and peer.subnet_of(each) for each in self._networks)  # type: ignore[arg-type]
