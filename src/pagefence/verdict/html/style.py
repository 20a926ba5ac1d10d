"""The style sheet: no font, image or script from anywhere, light and dark by the reader's wish, and paper."""

from __future__ import annotations

import base64
import hashlib

STYLE = """
:root{color-scheme:light dark;
--paper:#fff;--card:#f6f8fa;--ink:#1f2328;--dim:#57606a;--rule:#d0d7de;--link:#0550ae;
--red:#b3151d;--redbg:#ffebe9;--amber:#7a4b00;--amberbg:#fff4d6;--green:#12663a;--greenbg:#dff5e6;
--a:#0969a8;--b:#a34b00;--c:#6b3fc9;--d:#0b6e74;--mark:#ffd8d3;--stripe:rgba(255,255,255,.62);--count:#fff}
@media (prefers-color-scheme:dark){:root{
--paper:#0d1117;--card:#161b22;--ink:#e6edf3;--dim:#a3adb8;--rule:#343b44;--link:#79b8ff;
--red:#ff9b93;--redbg:#3a1518;--amber:#f0c368;--amberbg:#33270a;--green:#7ee2a8;--greenbg:#0f2f1d;
--a:#6cb6ff;--b:#ffa657;--c:#c8a6ff;--d:#5fd3d8;--mark:#6b1f1f;--stripe:rgba(13,17,23,.6);--count:#0d1117}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);line-height:1.5;
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","DejaVu Sans",sans-serif}
.wrap{max-width:72rem;margin:0 auto;padding:1.5rem 1.25rem 3rem}
h1,h2,h3{line-height:1.25;margin:0;text-wrap:balance}
h1{font-size:1.9rem;letter-spacing:-.01em}
h2{font-size:1.25rem;margin:2.75rem 0 .75rem;padding-bottom:.35rem;border-bottom:1px solid var(--rule)}
h3{font-size:1rem;margin:1.25rem 0 .5rem}
p{margin:.5rem 0;max-width:75ch}
a{color:var(--link)}
.dim,caption,figcaption,dt{color:var(--dim)}
.top{display:flex;flex-wrap:wrap;gap:.25rem 1rem;justify-content:space-between;align-items:baseline;font-size:.875rem;
color:var(--dim);margin-bottom:1rem}
.top b{color:var(--ink)}
.verdict{border:1px solid var(--tone);border-left-width:.5rem;border-radius:.6rem;background:var(--toned);
padding:1.1rem 1.35rem 1.2rem}
.verdict h1{color:var(--tone)}
.verdict .why{font-size:1.1rem;margin:.5rem 0 0;overflow-wrap:anywhere}
.verdict .next{margin:.75rem 0 0;font-weight:600}
.bad{--tone:var(--red);--toned:var(--redbg)}
.doubt{--tone:var(--amber);--toned:var(--amberbg)}
.good{--tone:var(--green);--toned:var(--greenbg)}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:1px;margin:1.25rem 0 0;
border:1px solid var(--rule);border-radius:.6rem;overflow:hidden}
.facts div{box-shadow:0 0 0 1px var(--rule);padding:.7rem .9rem}
.facts dt{font-size:.8rem}
.facts dd{margin:.1rem 0 0;font-size:1.15rem;font-weight:600;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.facts dd small{display:block;font-weight:400;font-size:.8rem;color:var(--dim)}
.finding{border:1px solid var(--rule);border-left:.35rem solid var(--tone);border-radius:.6rem;padding:.9rem 1.1rem;
margin:1rem 0;background:var(--card)}
.finding h3{margin:0 0 .4rem;overflow-wrap:anywhere}
.finding>p{overflow-wrap:anywhere}
.kind{display:inline-block;border-radius:.35rem;padding:.05rem .5rem;margin-right:.4rem;font-size:.8rem;font-weight:700;
letter-spacing:.02em;color:var(--tone);background:var(--toned);border:1px solid var(--tone)}
.remedy{border-left:.2rem solid var(--tone);padding-left:.75rem}
pre{background:var(--paper);border:1px solid var(--rule);border-radius:.4rem;padding:.6rem .75rem;margin:.4rem 0;
white-space:pre-wrap;overflow-wrap:anywhere;font-size:.85rem;max-height:22rem;overflow-y:auto}
pre,code,td.where,.mono{font-family:ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace}
code,td.where,.mono{font-size:.875em;overflow-wrap:anywhere}
mark{background:var(--mark);color:inherit;font-weight:700;border-radius:.2rem;padding:0 .1rem}
details{margin:.5rem 0}
.others{padding-left:1.1rem}.others li{margin:.75rem 0}.others p{margin:.1rem 0;overflow-wrap:anywhere}
summary{cursor:pointer;color:var(--link)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem}
caption{text-align:left;font-size:.85rem;padding:.25rem 0}
th,td{text-align:left;vertical-align:top;padding:.45rem .75rem .45rem 0;border-top:1px solid var(--rule)}
thead th{border-top:0;font-size:.8rem;font-weight:600;color:var(--dim);white-space:nowrap}
tbody th{font-weight:600}
td,tbody th{overflow-wrap:anywhere}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums;overflow-wrap:normal;white-space:nowrap}
td.state{white-space:nowrap;font-weight:700;color:var(--tone);width:1%}
td.id{white-space:nowrap}
.checks td.where{width:34%}
.numbers{display:flex;flex-wrap:wrap;gap:.15rem 1.5rem;margin:.4rem 0 .6rem;font-size:.9rem}
.numbers div{display:flex;gap:.4rem}
.numbers dd{margin:0;font-weight:600;font-variant-numeric:tabular-nums}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1.5rem 2.5rem}
figure{margin:.5rem 0 1rem}
figcaption{font-size:.85rem;margin-top:.35rem}
figcaption ul{margin:.4rem 0 0;padding:0;list-style:none;color:var(--ink)}
figcaption li{margin:.2rem 0}
svg{display:block;width:100%;height:auto;max-width:36rem}
svg text{fill:var(--ink);font:11px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
svg .tick{fill:var(--dim);font-size:10px}
svg .axis{fill:var(--dim)}
.grid{stroke:var(--rule);stroke-width:.7}
.level{stroke:var(--dim);stroke-width:1;stroke-dasharray:4 3}
.line{fill:none;stroke-width:2}
.thin{stroke-width:1;stroke-dasharray:2 2}
.line.a{stroke:var(--a)}.line.b{stroke:var(--b)}.line.c{stroke:var(--c)}.line.d{stroke:var(--d)}
.point{fill:var(--a);stroke:var(--paper);stroke-width:1}
.point.whole{fill:var(--paper);stroke:var(--a);stroke-width:1.5}
.point.over{fill:var(--red)}
.cell.reader{fill:var(--a)}.cell.planter{fill:var(--red)}.cell.nobody{fill:var(--dim)}.cell.mixed{fill:var(--c)}
.cell.answer{fill:var(--d)}
svg .count{fill:var(--ink);font-size:8.5px;font-weight:600}
svg .count.known{fill:var(--count)}
.stripe{stroke:var(--stripe);stroke-width:6}
.legend{display:inline-block;margin-right:1rem}
.key{display:inline-block;width:.75rem;height:.75rem;border-radius:.2rem;margin-right:.4rem;background:var(--dim);
vertical-align:-.05rem}
.key.a,.key.reader{background:var(--a)}.key.b{background:var(--b)}.key.c,.key.mixed{background:var(--c)}
.key.d,.key.answer{background:var(--d)}.key.planter,.key.over{background:var(--red)}
.key.told{background:var(--a);border-radius:50%}.key.seen{background:var(--a);border-radius:50%}.key.over{border-radius:50%}
.key.whole{background:var(--paper);border:2px solid var(--a);border-radius:50%}
.key.dash{background:none;border-top:2px dashed var(--dim);height:0;vertical-align:.2rem;border-radius:0}
.foot{margin-top:3rem;padding-top:1rem;border-top:1px solid var(--rule);font-size:.85rem;color:var(--dim)}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
@media (max-width:40rem){
.wrap{padding:1rem 1rem 2rem}
h1{font-size:1.5rem}
.verdict{padding:.9rem 1rem;border-left-width:.35rem}
.checks thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.checks tr{display:block;border-top:1px solid var(--rule);padding:.5rem 0}
.checks td{display:block;border:0;padding:.05rem 0}
.checks td.where{width:auto}
.checks td.state,.checks td.id{display:inline-block;width:auto;margin-right:.6rem}
.nodes td,.nodes th{white-space:nowrap;padding-right:1rem}
}
@media print{
:root{--paper:#fff;--card:#fff;--ink:#000;--dim:#444;--rule:#bbb;--link:#000;--red:#9c0f16;--redbg:#fff;--amber:#6a4000;
--amberbg:#fff;--green:#0b5a30;--greenbg:#fff;--a:#0969a8;--b:#a34b00;--c:#6b3fc9;--d:#0b6e74;--mark:#ffd8d3;
--stripe:rgba(255,255,255,.62);--count:#fff}
.wrap{max-width:none;padding:0}
.finding,figure,tr,.facts{break-inside:avoid}
h2,h3{break-after:avoid}
pre{max-height:none}
svg,mark,.key{-webkit-print-color-adjust:exact;print-color-adjust:exact}
details{display:block}
details::details-content{content-visibility:visible;display:block;height:auto}
}
"""

_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
# The browser itself forbids what the report must not do: no script, no request, no form, no style but this one.
POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; img-src data:; base-uri 'none'; form-action 'none'"
