"""How pages look, in light and in dark, on a screen, on a phone and on paper."""

STYLE = """
:root { color-scheme: light dark; --ink: #1d1d1f; --paper: #ffffff; --faint: #6b6b70; --line: #d5d5da; --band: #f4f4f6;
  --mark: #0072b2; --warn: #b34700; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececf0; --paper: #17171a; --faint: #a5a5ad; --line: #3c3c43; --band: #222226; --mark: #56b4e9;
    --warn: #ff9d5c; }
}
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 70rem;
  margin: 2rem auto; padding: 0 1.2rem; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; margin-bottom: .2rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .4rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
p { max-width: 46rem; margin: .4rem 0; }
a { color: var(--mark); }
code { font-size: .92em; }
pre { background: var(--band); padding: .6rem .8rem; border-radius: 6px; overflow-x: auto; font-size: .86rem;
  max-width: 100%; }
.faint { color: var(--faint); }
.result, .warning { font-size: 1.1rem; border-left: 4px solid var(--mark); padding-left: .8rem; margin: .8rem 0; }
.warning { font-size: 1rem; border-color: var(--warn); }
.contents { font-size: .92rem; margin: 1rem 0; display: flex; flex-wrap: wrap; gap: .1rem 1rem; }
.numbers { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: .6rem; margin: 1rem 0; }
.numbers div { background: var(--band); border-radius: 6px; padding: .5rem .8rem; }
.numbers dd { font-size: 1.25rem; font-weight: 600; margin: 0; font-variant-numeric: tabular-nums; }
.numbers dt { font-size: .84rem; color: var(--faint); }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 0 1.6rem; }
.pair > * { min-width: 0; }
figure { margin: .8rem 0; }
figcaption { font-size: .9rem; color: var(--faint); max-width: 46rem; }
svg { display: block; max-width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; margin: .6rem 0; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td { max-width: 36rem; }
thead th { vertical-align: bottom; background: var(--band); }
td:first-child, .number { white-space: nowrap; }
.number { text-align: right; }
thead .number { white-space: normal; }
tr.best { font-weight: 600; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: .4rem; font-size: .84rem;
  color: var(--faint); }
@media (max-width: 30rem) {
  body { margin: 1rem auto; padding: 0 .9rem; }
  .numbers { grid-template-columns: repeat(auto-fill, minmax(8rem, 1fr)); }
  th, td { padding: .25rem .5rem; }
}
@media print {
  :root { --ink: #000; --paper: #fff; --faint: #444; --line: #bbb; --band: #f4f4f6; }
  @page { margin: 14mm; }
  body { margin: 0; padding: 0; max-width: none; font-size: 10pt; }
  figure, svg, tr { break-inside: avoid; }
  h2, h3, p { break-after: avoid; }
  .wide { overflow: visible; }
  .contents { display: none; }
  table { font-size: 8pt; }
  th, td { padding: .15rem .35rem; }
}
"""
