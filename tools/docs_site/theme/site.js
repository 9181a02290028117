// What the theme adds in the browser, made usable by keyboard and screen reader.
function amend() {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset__table")) box.tabIndex = 0
  for (const bar of document.querySelectorAll("nav.md-code__nav")) bar.setAttribute("role", "presentation")
}
new MutationObserver(amend).observe(document.body, { childList: true, subtree: true })
amend()
