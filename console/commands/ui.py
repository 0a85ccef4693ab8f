"""`lakelatch ui`: tables on a page that moves."""

from __future__ import annotations

from collections.abc import Callable

from lakelatch.console.base.invocation import Invocation, Outcome
from lakelatch.errors import InvalidRequest


def show(call: Invocation, host: str, port: int, every_s: int, allow_actions: bool, open: bool) -> Outcome:
    """Serves the page until SIGINT or SIGTERM."""
    try:
        from lakelatch.ui.actions import PageTable
        from lakelatch.ui.server import PageSettings, serve
    except ModuleNotFoundError as error:
        raise InvalidRequest(f"the page needs {error.name}: pip install 'lakelatch[ui]'") from None
    settings = PageSettings(
        tables=[PageTable(table.path, table.options) for table in call.tables],
        host=host,
        port=port,
        every_s=every_s,
        allow_actions=allow_actions,
    )
    url = ""

    def started(where: str, _: Callable[[], None]) -> None:
        nonlocal url
        url = where
        call.console.print(f"open {where}", soft_wrap=True, markup=False)
        call.console.print("who has this URL sees the page; Ctrl-C ends it", markup=False)
        if open:
            import webbrowser

            webbrowser.open(where)

    serve(settings, started)
    return 0, {"url": url.partition("?")[0]}
