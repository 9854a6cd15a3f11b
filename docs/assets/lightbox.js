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
