// Making and placing parts of drawings.

export function element(parent, name, attributes = {}) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  place(made, attributes);
  parent.append(made);
  return made;
}

export function place(part, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    part.setAttribute(name, typeof value === "number" ? Number(value.toFixed(3)) : value);
  }
}
