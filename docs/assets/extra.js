// A click on a picture shows it in the size of the window; a click or Escape closes it.
document.addEventListener("click", ({ target }) => {
  if (!target.matches(".picture img")) return;
  const dialog = document.createElement("dialog");
  dialog.className = "lightbox";
  const picture = document.createElement("img");
  picture.src = target.src;
  picture.alt = target.alt;
  dialog.append(picture);
  dialog.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
});

// Tables and formulas that are wider than the page scroll in their own box: the keyboard must reach it.
function reachWide() {
  for (const node of document.querySelectorAll(".md-typeset__scrollwrap, math[display=block]")) {
    if (node.scrollWidth > node.clientWidth) node.tabIndex = 0;
    else node.removeAttribute("tabindex");
  }
}
addEventListener("load", reachWide);
addEventListener("resize", reachWide);
