// Confidence over the last 360° of movement, and confidence and correctness at every angle.

import { element } from "./svg.js";

const KINDS = ["ptn", "cnn"];
const LEFT = 40;
const RIGHT = 44;
const TOP = 8;
const FOOT = 22;

class Chart {
  constructor(svg) {
    this.svg = svg;
    new ResizeObserver(() => this.draw()).observe(svg);
  }

  // Draws axes; returns `x` and `y`, which map fractions of the axes to pixels. `low` pixels below the axis stay free.
  axes(ticks, low = 0) {
    const { clientWidth: width, clientHeight: height } = this.svg;
    this.svg.replaceChildren();
    const bottom = height - FOOT - low;
    const x = (share) => LEFT + share * Math.max(10, width - LEFT - RIGHT);
    const y = (share) => bottom - share * (bottom - TOP);
    for (const share of [0, 0.5, 1]) {
      element(this.svg, "line", { class: "grid", x1: x(0), x2: x(1), y1: y(share), y2: y(share) });
      this.text(x(0) - 6, y(share) + 4, `${100 * share}%`, "", "end");
    }
    for (const [share, label, anchor] of ticks) this.text(x(share), height - 6, label, "", anchor ?? "middle");
    return { x, y, bottom };
  }

  text(x, y, content, kind = "", anchor = "start") {
    element(this.svg, "text", { x, y, class: kind, "text-anchor": anchor }).textContent = content;
  }

  line(points, kind) {
    element(this.svg, "polyline", { class: kind, points: points.map((at) => at.map((v) => v.toFixed(1)).join()).join(" ") });
  }

  // Draws names at the ends of lines without overlap.
  label(ends, x) {
    const sorted = [...ends].sort((a, b) => a.y - b.y);
    sorted.forEach((end, index) => {
      if (index) end.y = Math.max(end.y, sorted[index - 1].y + 14);
    });
    for (const { name, y, kind } of sorted) this.text(x, y + 4, name, kind);
  }
}

// The confidences of the last 360° of movement, the newest on the right.
export class Strip extends Chart {
  travel = 0;
  points = [];
  names = [];

  clear(names) {
    this.names = names;
    this.points = [];
    this.draw();
  }

  // `way` is the movement since the last point, in degrees.
  add(way, confidences) {
    this.travel += way;
    this.points.push({ travel: this.travel, confidences });
    const cut = this.points.findIndex(({ travel }) => this.travel - travel <= 360);
    this.points.splice(0, Math.max(0, cut - 1));
    this.draw();
  }

  draw() {
    const { x, y } = this.axes([[0, "360° ago", "start"], [1, "now", "end"]]);
    const ends = [];
    this.names.forEach((name, index) => {
      if (!this.points.length) return;
      const at = ({ travel, confidences }) => [x(Math.max(0, 1 - (this.travel - travel) / 360)), y(confidences[index])];
      this.line(this.points.map(at), KINDS[index]);
      ends.push({ name, y: at(this.points.at(-1))[1], kind: KINDS[index] });
    });
    this.label(ends, x(1) + 6);
  }
}

// One full rotation: {degrees, confidences, right} for each angle.
export class Sweep extends Chart {
  points = [];
  names = [];

  // `goal` labels correct predictions: "right", or "same" without a true class.
  clear(names, goal) {
    this.names = names;
    this.goal = goal;
    this.points = [];
    this.draw();
  }

  add(point) {
    this.points.push(point);
    this.draw();
  }

  // The fraction of angles at which each network is correct.
  accuracy() {
    return this.names.map((_, index) => this.points.filter(({ right }) => right[index]).length / this.points.length);
  }

  draw() {
    const low = 15 * this.names.length + 4;
    const ticks = [0, 90, 180, 270, 360].map((degrees) => [degrees / 360, `${degrees}°`]);
    const { x, y, bottom } = this.axes(ticks, low);
    if (!this.points.length) {
      this.text(x(0.5), y(0.5) - 8, "Press “Spin 360°”", "", "middle");
      return;
    }
    const ends = [];
    const step = this.points.length > 1 ? this.points[1].degrees - this.points[0].degrees : 5;
    const accuracy = this.accuracy();
    this.names.forEach((name, index) => {
      const kind = KINDS[index];
      const line = this.points.map(({ degrees, confidences }) => [x(degrees / 360), y(confidences[index])]);
      this.line(line, kind);
      ends.push({ name, y: line.at(-1)[1], kind });
      const row = bottom + 6 + 15 * index;
      const wide = (x(step / 360) - x(0)) * 0.72;
      const boxes = { right: "", wrong: "" };
      for (const { degrees, right } of this.points) {
        const box = `M${x(degrees / 360).toFixed(1)} ${row}h${wide.toFixed(1)}v9h${-wide.toFixed(1)}z`;
        if (degrees < 360) boxes[right[index] ? "right" : "wrong"] += box;
      }
      for (const [which, d] of Object.entries(boxes)) element(this.svg, "path", { class: `${kind} ${which}`, d });
      this.text(x(1) + 6, row + 9, `${(100 * accuracy[index]).toFixed(0)}%`, kind);
    });
    this.text(x(0) - 6, bottom + 8 + 7.5 * this.names.length, this.goal, "", "end");
    this.label(ends, x(1) + 6);
  }
}
