"""Who may see the page: a browser on this machine whose user has the token.

The token comes once, in the URL that is printed; a cookie with another secret stands for it from then on. Names of
hosts are checked, so that no page of another name can be made to lead here, and origins, so that none can act by the
cookie.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Guard:
    """Answers 403 to every request that lacks token and cookie, or is for another host, or from another origin."""

    def __init__(self, app: ASGIApp, token: str, cookie: str, hosts: Collection[str], port: int) -> None:
        self._app = app
        self._token = token
        self._cookie = cookie
        self._hosts = frozenset(hosts)
        self._cookie_name = f"lakelatch-ui-{port}"  # cookies of one host are shared by its ports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        problem, has_token = self._problem(scope, headers), self._has_token(scope)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    answer[name] = value
                if has_token and not problem:
                    kept = f"{self._cookie_name}={self._cookie}; HttpOnly; SameSite=Strict; Path=/"
                    answer.append("Set-Cookie", kept)
            await send(message)

        refused = PlainTextResponse(f"{problem}\n", status_code=403)
        await (refused if problem else self._app)(scope, receive, send_guarded)

    def _problem(self, scope: Scope, headers: Headers) -> str:
        """Why the request is refused; "" if it is not."""
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or name_in(host) not in self._hosts:
            return f"This page is not served for the host {host!r}: open the URL that lakelatch ui has printed."
        origin = headers.get("origin")
        if (origin is not None or scope["method"] not in ("GET", "HEAD")) and origin != f"http://{host}":
            return f"The origin {origin!r} may not ask here: only the page itself does."
        if not (self._has_token(scope) or self._has_cookie(headers)):
            return "The token is missing or wrong: open the whole URL that lakelatch ui has printed."
        return ""

    def _has_token(self, scope: Scope) -> bool:
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])
        return scope["path"] == "/" and _same(given[-1], self._token)

    def _has_cookie(self, headers: Headers) -> bool:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self._cookie_name)
        except CookieError:
            return False
        return found is not None and _same(found.value, self._cookie)


def name_in(host: str) -> str:
    """The name or address in a Host header, without its port: a tunnel has another one."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), secret.encode())
