// Creates SVG elements and sets their attributes.

export function element(parent, name, attributes = {}) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  place(node, attributes);
  parent.append(node);
  return node;
}

export function place(part, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    part.setAttribute(name, typeof value === "number" ? Number(value.toFixed(3)) : value);
  }
}
