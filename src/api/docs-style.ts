/**
 * The style sheet of the docs page. It is inlined, and allowed by its hash in the page's Content-Security-Policy, so
 * the page is one response and loads nothing. Light and dark follow the reader's system; below 46rem tables stack and
 * the contents are at the top.
 */

export const DOCS_STYLE = `
:root {
  color-scheme: light dark;
  --paper: #fcfcfa; --panel: #f3f4f1; --line: #e2e5e1; --ink: #1c2327; --soft: #566069; --accent: #0a6a73;
  --on-accent: #ffffff; --key: #0a6a73; --text: #7a4a12; --number: #7b3f86;
  --good: #1d6b3c; --warn: #8a5300; --bad: #a1322b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #12171a; --panel: #1a2125; --line: #2a3339; --ink: #dde4e6; --soft: #97a4ab; --accent: #62c4ca;
    --on-accent: #0d1214; --key: #74ccd1; --text: #e0b57f; --number: #cfa3d8;
    --good: #7fce9b; --warn: #e0b36a; --bad: #ee928b;
  }
}
* { box-sizing: border-box; }
html { scroll-padding-top: 1.5rem; -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
a { color: var(--accent); text-underline-offset: 0.2em; }
a:focus-visible, summary:focus-visible, pre:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.skip { position: absolute; left: -100rem; }
.skip:focus { left: 1rem; top: 1rem; background: var(--paper); padding: 0.5rem 1rem; z-index: 2; }
.shell { display: grid; grid-template-columns: 14rem minmax(0, 50rem); gap: 4rem; max-width: 74rem; margin: 0 auto; padding: 0 2rem; }
nav { position: sticky; top: 0; align-self: start; max-height: 100vh; overflow-y: auto; padding: 3rem 0; font-size: 0.9375rem; }
nav .brand { display: flex; align-items: center; gap: 0.6rem; font-weight: 650; font-size: 1.125rem; color: var(--ink); text-decoration: none; }
nav .brand svg { width: 1.5rem; height: 1.5rem; color: var(--accent); }
nav ul { list-style: none; margin: 0.4rem 0 0; padding: 0; }
nav h2 { all: unset; display: block; margin-top: 1.6rem; color: var(--soft); font-size: 0.8125rem; }
nav li a { display: block; padding: 0.2rem 0; color: var(--ink); text-decoration: none; }
nav li a:hover { color: var(--accent); text-decoration: underline; }
main { padding: 3rem 0 6rem; }
h1 { font-size: 2rem; line-height: 1.2; letter-spacing: -0.015em; margin: 0 0 0.75rem; font-weight: 650; text-wrap: balance; }
h2 { font-size: 1.4375rem; line-height: 1.3; letter-spacing: -0.01em; margin: 0 0 0.75rem; font-weight: 650; }
h4 { margin: 0 0 0.4rem; font-size: 0.875rem; font-weight: 500; color: var(--soft); }
h3 { font-size: 1.0625rem; margin: 2rem 0 0.5rem; font-weight: 650; }
p, ul { margin: 0 0 1rem; max-width: 44rem; }
td strong { font-weight: 600; }
section { padding-top: 2.5rem; margin-top: 2.5rem; border-top: 1px solid var(--line); }
.lead { font-size: 1.125rem; color: var(--soft); }
.meta { color: var(--soft); font-size: 0.9375rem; }
code { font: 0.875em/1.5 ui-monospace, SFMono-Regular, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; }
p code, li code, td code, summary code { background: var(--panel); border-radius: 0.25rem; padding: 0.1em 0.3em; overflow-wrap: anywhere; }
.field code { background: none; padding: 0; font-weight: 600; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 0.5rem; margin: 0 0 1rem; padding: 0.9rem 1.1rem; overflow-x: auto; }
pre code { font-size: 0.8438rem; line-height: 1.65; }
pre b { font-weight: 400; }
.k { color: var(--key); } .s { color: var(--text); } .n { color: var(--number); }
.endpoint { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0.3rem 0.75rem; margin: 0 0 0.75rem; font-size: 1.0625rem; }
.endpoint code { font-weight: 600; overflow-wrap: anywhere; }
.method { font-size: 0.75rem; font-weight: 700; letter-spacing: 0.04em; padding: 0.15rem 0.5rem; border-radius: 0.3rem; border: 1px solid var(--accent); color: var(--accent); }
.method.post { background: var(--accent); color: var(--on-accent); }
table { width: 100%; border-collapse: collapse; margin: 0 0 1.25rem; font-size: 0.9375rem; line-height: 1.5; }
th { text-align: left; font-weight: 500; font-size: 0.8125rem; color: var(--soft); padding: 0 1rem 0.4rem 0; border-bottom: 1px solid var(--line); }
td { vertical-align: top; padding: 0.55rem 1rem 0.55rem 0; border-bottom: 1px solid var(--line); }
td:last-child, th:last-child { padding-right: 0; }
td.field { white-space: nowrap; }
.field i { color: var(--soft); }
td.type { color: var(--soft); min-width: 9rem; }
td.type em { font-style: normal; color: var(--accent); font-weight: 600; font-size: 0.8125rem; }
td.message { width: 52%; }
td.status { white-space: nowrap; font-weight: 600; font-variant-numeric: tabular-nums; }
.depth-1 { padding-left: 1.25rem; } .depth-2 { padding-left: 2.5rem; } .depth-3 { padding-left: 3.75rem; }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); }
details { border: 1px solid var(--line); border-radius: 0.5rem; margin: 0 0 0.5rem; }
summary { cursor: pointer; display: flex; gap: 0.75rem; padding: 0.6rem 1rem; list-style: none; }
summary::-webkit-details-marker { display: none; }
summary::after { content: "+"; margin-left: auto; color: var(--soft); }
details[open] > summary::after { content: "\\2212"; }
summary strong { font-variant-numeric: tabular-nums; }
details[open] > summary { border-bottom: 1px solid var(--line); }
details .inside { padding: 1rem 1rem 0.25rem; }

.tabs { border: 0; margin: 0 0 1rem; padding: 0; min-width: 0; }
.tabs legend { float: left; margin-right: 1rem; padding: 0.35rem 0; color: var(--soft); font-size: 0.9375rem; }
.tabs input { position: absolute; opacity: 0; }
.tabs label { display: inline-block; margin: 0 0.25rem 1rem 0; padding: 0.35rem 0.8rem; border-bottom: 2px solid transparent; cursor: pointer; }
.tabs label:hover { color: var(--accent); }
.tabs input:checked + label { border-bottom-color: var(--accent); color: var(--accent); font-weight: 600; }
.tabs input:focus-visible + label { outline: 2px solid var(--accent); outline-offset: 2px; }
.tabs .panel { display: none; clear: both; }
#from-curl:checked ~ .from-curl, #from-browser:checked ~ .from-browser, #from-node:checked ~ .from-node, #from-segment:checked ~ .from-segment { display: block; }
footer { margin-top: 4rem; color: var(--soft); font-size: 0.875rem; }
@media (max-width: 60rem) {
  .shell { display: block; padding: 0 1.25rem; }
  nav { position: static; max-height: none; padding: 1.5rem 0 0; }
  nav h2 { display: none; }
  nav ul { display: inline; margin: 0; }
  nav li { display: inline-block; margin-right: 1.1rem; }
  nav li a { padding: 0.35rem 0; color: var(--accent); }
  nav .brand { margin-bottom: 0.6rem; }
  main { padding-top: 1.75rem; }
}
@media (max-width: 46rem) {
  h1 { font-size: 1.625rem; }
  h2 { font-size: 1.25rem; }
  thead { position: absolute; left: -100rem; }
  table, tbody, tr { display: block; }
  tr { border-bottom: 1px solid var(--line); padding: 0.6rem 0; }
  td { display: block; border: 0; padding: 0.1rem 0; min-width: 0; width: auto; }
  td.message { width: auto; }
  td.field.depth-1, td.depth-1 ~ td { padding-left: 1rem; }
  td.field.depth-2, td.depth-2 ~ td { padding-left: 2rem; }
  td.field.depth-3, td.depth-3 ~ td { padding-left: 3rem; }
  pre { border-radius: 0; border-width: 1px 0; margin-left: -1.25rem; margin-right: -1.25rem; padding: 0.8rem 1.25rem; }
  details pre { border: 0; border-radius: 0.4rem; margin-left: 0; margin-right: 0; padding: 0.75rem 0.9rem; }
}
@media print { nav, .tabs label { display: none; } .tabs .panel { display: block; } .shell { display: block; } pre { white-space: pre-wrap; } }
`;
