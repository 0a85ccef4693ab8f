"""How a report looks: one style sheet, for light and for dark screens."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1d2329;--soft:#66707a;--line:#e2e6ea;--wash:#f5f7f9;
--good:#2f7d4f;--good-wash:#e9f5ee;--bad:#b3261e;--bad-wash:#fdeceb;
--committed:#2a6fbb;--refused:#d99a2b;--unknown:#c2408f;--failed:#9aa3ab;--reader:#5f9ea0;
--client:#c94f4f;--clock:#3c8f8f;--storage:#7d7a2a;--locks:#7b5bc4;--heat:42,111,187}
@media(prefers-color-scheme:dark){:root{--paper:#14181c;--ink:#e3e7ea;--soft:#929ca5;--line:#2b3238;--wash:#1c2227;
--good:#6cc391;--good-wash:#17291f;--bad:#f08a80;--bad-wash:#331b1a;
--committed:#5b9be0;--refused:#e0ab4d;--unknown:#e57fbd;--failed:#6d777f;--reader:#78b4b6;
--client:#e07a7a;--clock:#63b5b5;--storage:#b3b04f;--locks:#a58ae6;--heat:91,155,224}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1180px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:26px;margin:0 0 2px;letter-spacing:-.01em}
h2{font-size:18px;margin:40px 0 12px}
p{margin:6px 0}
a{color:var(--committed)}
.soft{color:var(--soft)}
.verdict{margin:20px 0 24px;padding:16px 20px;border-radius:10px;border-left:5px solid}
.verdict b{font-size:19px}
.good{background:var(--good-wash);border-color:var(--good)}.good b{color:var(--good)}
.bad{background:var(--bad-wash);border-color:var(--bad)}.bad b{color:var(--bad)}
.problems{margin:10px 0 0;padding-left:20px}
.problems li{margin:3px 0;overflow-wrap:anywhere}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(170px,1fr));gap:10px}
.tile{background:var(--wash);border-radius:8px;padding:10px 14px}
.tile b{display:block;font-size:22px;line-height:1.25;font-variant-numeric:tabular-nums}
.tile span{color:var(--soft);font-size:13px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:5px 10px;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:500}
th:first-child,td:first-child{text-align:left;padding-left:0}
td.text{text-align:left}
td.bar{width:45%;padding-right:0}
td.bar i{display:block;height:10px;border-radius:2px;background:var(--committed);min-width:2px}
.two{display:grid;grid-template-columns:1fr 1fr;gap:40px}
@media(max-width:900px){.two{grid-template-columns:1fr;gap:0}}
th.heat,td.heat{text-align:center}
td.heat{border:2px solid var(--paper);border-radius:4px;min-width:64px}
code{font:13px ui-monospace,SFMono-Regular,Menlo,monospace}
details{border:1px solid var(--line);border-radius:8px;margin:10px 0;padding:0 14px}
summary{cursor:pointer;padding:10px 0;display:flex;gap:14px;align-items:baseline;flex-wrap:wrap}
summary::-webkit-details-marker{display:none}
summary::before{content:"\\203a";color:var(--soft);width:8px;transition:transform .1s}
details[open]>summary::before{transform:rotate(90deg)}
summary b{min-width:150px}
.mark{font-size:12px;padding:1px 8px;border-radius:10px;background:var(--good-wash);color:var(--good)}
.mark.wrong{background:var(--bad-wash);color:var(--bad)}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:13px;color:var(--soft);margin:4px 0 10px}
.legend i{display:inline-block;width:14px;height:9px;border-radius:2px;margin-right:6px;vertical-align:0}
svg{display:block;width:100%;min-width:860px;height:auto;margin:0 0 12px}
svg text{font:11px system-ui,sans-serif;fill:var(--soft)}
svg text.lane{fill:var(--ink);font-size:12px}
.row{stroke:var(--line)}.grid{stroke:var(--line);stroke-dasharray:2 3}.phase{stroke:var(--soft)}
.calm{fill:var(--good);opacity:.07}
.committed{fill:var(--committed)}.refused{fill:var(--refused)}.unknown{fill:var(--unknown)}.failed{fill:var(--failed)}
.unanswered{fill:none;stroke:var(--unknown);stroke-dasharray:2 1.5}
.reader{stroke:var(--reader)}.tick{stroke:var(--committed);stroke-width:.9;opacity:.8}
.span{fill-opacity:.2;stroke-opacity:.75;stroke-width:1}
.point{fill-opacity:.9;stroke:none}
.f-client{fill:var(--client);stroke:var(--client)}.f-clock{fill:var(--clock);stroke:var(--clock)}
.f-storage{fill:var(--storage);stroke:var(--storage)}.f-locks{fill:var(--locks);stroke:var(--locks)}
.killed{stroke:var(--client);stroke-width:2;fill:none}.hit{fill:var(--client)}
.pause{fill:var(--client)}
"""

LEGEND = (
    ("committed", "committed"),
    ("refused", "refused"),
    ("unknown", "unknown"),
    ("failed", "failed before the commit"),
    ("reader", "seen by a reader"),
    ("client", "client stopped, killed or failed"),
    ("clock", "clock wrong"),
    ("storage", "storage disturbed"),
    ("locks", "locks disturbed"),
)
