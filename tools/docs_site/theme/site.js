// What the theme adds in the browser, made usable by keyboard and screen reader; rarely, as a page may have hundreds of them.
let waiting = 0
function amend() {
  waiting = 0
  for (const box of document.querySelectorAll(":is(.md-typeset__scrollwrap, .md-typeset__table):not([tabindex])")) box.tabIndex = 0
  for (const bar of document.querySelectorAll("nav.md-code__nav:not([role])")) bar.setAttribute("role", "presentation")
}
new MutationObserver(() => (waiting ||= setTimeout(amend, 100))).observe(document.body, { childList: true, subtree: true })
amend()
