// The answers of both networks: the likeliest class of each, and the probabilities side by side.

const MOST_CLASSES = 10;
const percent = (share) => `${(100 * share).toFixed(share > 0.9995 ? 0 : 1)}%`;

// Both networks, or the one that there is, PTN first.
export function networksOf({ polar_name, plain_name }) {
  const polar = { kind: "ptn", short: polar_name.split("-")[0], name: polar_name };
  return plain_name ? [polar, { kind: "cnn", short: "Plain CNN", name: plain_name }] : [polar];
}

export const best = (scores) => scores.indexOf(Math.max(...scores));

export class Answers {
  constructor(verdicts, bars) {
    this.verdicts = verdicts;
    this.bars = bars;
  }

  // New networks, and with them new classes.
  prepare(model) {
    this.model = model;
    this.networks = networksOf(model);
    this.boxes = this.networks.map(({ kind, short, name }) => {
      const box = make("div", `verdict ${kind}`);
      const who = make("div", "who", short);
      who.append(make("small", "", name));
      box.append(who, make("div", "what"), make("div", "sure"));
      return box;
    });
    this.verdicts.replaceChildren(...this.boxes);
    this.rows = Array.from({ length: Math.min(MOST_CLASSES, model.classes.length) }, () => {
      const row = make("div", "class");
      const pairs = make("div", "pairs");
      const fills = this.networks.map(({ kind }) => {
        const bar = make("span", `bar ${kind}`);
        bar.append(make("i", ""));
        pairs.append(bar);
        return bar.firstChild;
      });
      row.append(make("b", ""), pairs);
      return { row, fills };
    });
    this.bars.replaceChildren(...this.rows.map(({ row }) => row));
  }

  show(all, truth) {
    all.forEach((scores, index) => {
      const [, what, sure] = this.boxes[index].children;
      const answer = best(scores);
      const name = this.model.classes[answer];
      what.textContent = name;
      what.classList.toggle("long", name.length > 2);
      if (truth !== null) what.append(mark(answer === truth));
      sure.textContent = `${percent(scores[answer])} sure`;
    });
    this.#shown(all).forEach((label, index) => {
      const { row, fills } = this.rows[index];
      row.firstChild.textContent = this.model.classes[label];
      row.classList.toggle("true", label === truth);
      row.title = all.map((scores, which) => `${this.networks[which].name} ${percent(scores[label])}`).join(", ");
      all.forEach((scores, which) => (fills[which].style.transform = `scaleX(${scores[label].toFixed(4)})`));
    });
  }

  // All classes, or where they are many the likeliest.
  #shown(all) {
    const labels = this.model.classes.map((_, label) => label);
    if (labels.length <= MOST_CLASSES) return labels;
    const most = (label) => Math.max(...all.map((scores) => scores[label]));
    return labels.sort((a, b) => most(b) - most(a)).slice(0, MOST_CLASSES);
  }
}

function mark(right) {
  const made = make("span", `mark ${right ? "right" : "wrong"}`, right ? "✓" : "✗");
  made.setAttribute("aria-label", right ? "right" : "wrong");
  return made;
}

function make(name, kind, text = "") {
  const made = document.createElement(name);
  made.className = kind;
  made.textContent = text;
  return made;
}
