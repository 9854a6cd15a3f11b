// The scoreboard around the stage: a circular strip for each network, one tick per angle.

import { element, place } from "./svg.js";

const KINDS = ["ptn", "cnn"];
const MIDDLE = 100;
const RADII = [[94, 99.5], [87, 92.5]]; // inner and outer radius of each strip; the stage is 200 wide
export const INNER = 86 / 200; // radius of the free disc as a share of the stage

export class Ring {
  constructor(svg) {
    this.svg = svg;
    place(svg, { viewBox: "0 0 200 200" });
    this.tracks = element(svg, "g");
    this.ticks = element(svg, "g");
    this.scores = [];
    this.outlined = false; // whether a tick is outlined: wrong, but the same as upright
  }

  // Clears the ring. `networks` is the number of networks, `truth` the true class or null.
  clear(networks, truth) {
    this.truth = truth;
    this.predictions = null;
    this.shown = 0;
    this.scores = [];
    this.ticks.replaceChildren();
    this.tracks.replaceChildren();
    for (const [inner, outer] of RADII.slice(0, networks)) {
      element(this.tracks, "circle", { class: "track", cx: MIDDLE, cy: MIDDLE, r: (inner + outer) / 2, "stroke-width": outer - inner });
    }
    this.svg.setAttribute("aria-label", "Predictions at every angle: not computed yet");
  }

  // Shows the first `count` of the predictions of every network, in the order of the angles from upright.
  show(predictions, count = predictions[0].length) {
    this.predictions = predictions;
    this.shown = count;
    this.scores = predictions.map((labels) => {
      const expected = this.truth ?? labels[0];
      return labels.slice(0, count).filter((label) => label === expected).length;
    });
    this.outlined = false;
    this.ticks.replaceChildren();
    predictions.forEach((labels, index) => {
      const marks = { good: "", same: "", bad: "" };
      labels.slice(0, count).forEach((label, step) => {
        const kind = label === (this.truth ?? labels[0]) ? "good" : label === labels[0] ? "same" : "bad";
        marks[kind] += tick(step, labels.length, ...RADII[index]);
      });
      this.outlined ||= marks.same !== "";
      for (const [kind, d] of Object.entries(marks)) element(this.ticks, "path", { class: `tick ${KINDS[index]} ${kind}`, d });
    });
  }

  // Sets the text equivalent.
  describe(names) {
    const total = this.predictions[0].length;
    const what = this.truth === null ? "the same prediction as upright" : "the right prediction";
    const text = names.map((name, index) => `${name}: ${what} at ${this.scores[index]} of ${total} angles`).join(". ");
    this.svg.setAttribute("aria-label", text);
    return text;
  }
}

// Path of the tick of one angle; angle 0 is at the top, clockwise.
function tick(step, steps, inner, outer) {
  const half = (0.42 * 2 * Math.PI) / steps;
  const middle = (step * 2 * Math.PI) / steps;
  const at = (radius, angle) => `${(MIDDLE + radius * Math.sin(angle)).toFixed(2)} ${(MIDDLE - radius * Math.cos(angle)).toFixed(2)}`;
  const [from, to] = [middle - half, middle + half];
  return `M${at(inner, from)}L${at(outer, from)}L${at(outer, to)}L${at(inner, to)}z`;
}
