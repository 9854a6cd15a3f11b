// Predictions of both networks: the most probable class of each, and all probabilities side by side.

const MOST_CLASSES = 10;
const percent = (share) => `${(100 * share).toFixed(share > 0.9995 ? 0 : 1)}%`;

// The networks of a pair, PTN first; the plain network may be missing.
export function networksOf({ polar_name, plain_name, polar_parameters, plain_parameters }) {
  const describe = (name, count) => `${name}, ${Math.round(count / 1000)}k parameters`;
  const polar = { kind: "ptn", short: "Polar network", name: describe(polar_name, polar_parameters) };
  return plain_name ? [polar, { kind: "cnn", short: "Plain CNN", name: describe(plain_name, plain_parameters) }] : [polar];
}

export const best = (probabilities) => probabilities.indexOf(Math.max(...probabilities));

export class Answers {
  constructor(verdicts, bars) {
    this.verdicts = verdicts;
    this.bars = bars;
  }

  // Creates the elements for the networks and classes of a model.
  prepare(model) {
    this.model = model;
    this.networks = networksOf(model);
    this.boxes = this.networks.map(({ kind, short, name }) => {
      const box = make("div", `verdict ${kind}`);
      const score = make("div", "score");
      score.append(make("b", ""), make("span", ""));
      box.append(make("h3", "who", short), make("div", "what"), make("div", "sure"), score, make("small", "name", name));
      return box;
    });
    this.verdicts.replaceChildren(...this.boxes);
    this.rows = Array.from({ length: Math.min(MOST_CLASSES, model.classes.length) }, () => {
      const row = make("li", "class");
      const pairs = make("div", "pairs");
      pairs.setAttribute("aria-hidden", "true");
      const fills = this.networks.map(({ kind }) => {
        const bar = make("span", `bar ${kind}`);
        bar.append(make("i", ""));
        pairs.append(bar);
        return bar.firstChild;
      });
      row.append(make("b", ""), pairs, make("span", "unseen"));
      return { row, fills };
    });
    this.bars.replaceChildren(...this.rows.map(({ row }) => row));
  }

  show(all, truth) {
    all.forEach((probabilities, index) => {
      const [, what, sure] = this.boxes[index].children;
      const prediction = best(probabilities);
      const name = this.model.classes[prediction];
      what.textContent = name;
      what.classList.toggle("long", name.length > 2);
      if (truth !== null) what.append(mark(prediction === truth));
      sure.textContent = percent(probabilities[prediction]);
    });
    this.#shown(all).forEach((label, index) => {
      const { row, fills } = this.rows[index];
      row.firstChild.textContent = this.model.classes[label];
      row.classList.toggle("true", label === truth);
      row.title = all.map((probabilities, which) => `${this.networks[which].short} ${percent(probabilities[label])}`).join(", ");
      row.lastChild.textContent = row.title;
      all.forEach((probabilities, which) => (fills[which].style.transform = `scaleX(${probabilities[label].toFixed(4)})`));
    });
  }

  // The number of angles at which each network is right, or predicts the same as upright.
  score(scores, count, truth) {
    this.boxes.forEach((box, index) => {
      const [number, words] = box.querySelector(".score").children;
      number.textContent = scores.length ? `${scores[index]} of ${count}` : "";
      words.textContent = scores.length ? (truth === null ? " unchanged" : " angles right") : "";
    });
  }

  // What both networks predict, in words.
  describe(all, truth) {
    return all.map((probabilities, index) => {
      const prediction = best(probabilities);
      const verdict = truth === null ? "" : prediction === truth ? ", right" : ", wrong";
      return `${this.networks[index].short}: ${this.model.classes[prediction]}${verdict}, ${percent(probabilities[prediction])}`;
    }).join(". ");
  }

  // All classes, or the MOST_CLASSES most probable ones.
  #shown(all) {
    const labels = this.model.classes.map((_, label) => label);
    if (labels.length <= MOST_CLASSES) return labels;
    const most = (label) => Math.max(...all.map((probabilities) => probabilities[label]));
    return labels.sort((a, b) => most(b) - most(a)).slice(0, MOST_CLASSES);
  }
}

function mark(right) {
  const node = make("span", `mark ${right ? "right" : "wrong"}`, right ? "✓" : "✗");
  node.setAttribute("aria-label", right ? "right" : "wrong");
  return node;
}

function make(name, kind, text = "") {
  const node = document.createElement(name);
  node.className = kind;
  node.textContent = text;
  return node;
}
