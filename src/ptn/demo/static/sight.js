// Intermediate results of PTN: the input with heatmap and origin, the log-polar image and its feature maps.

import { heat, paint, viridis } from "./pictures.js";
import { element, place } from "./svg.js";
import { Unroll } from "./unroll.js";

const byId = (id) => document.getElementById(id);

function crosshair(svg) {
  return ["halo", "cross"].map((kind) => element(svg, "path", { class: kind }));
}

function follower(svg) {
  return ["line under", "line"].map((kind) => element(svg, "line", { class: kind, x1: 0, x2: 100 }));
}

export class Sight {
  constructor() {
    this.cross = crosshair(byId("input-marks"));
    this.rows = [follower(byId("polar-marks"))];
    this.pin = dotOver(byId("input-frame"), "input-dot");
    this.polarPin = dotOver(byId("polar-frame"), "marker");
    this.maps = [];
    this.unroll = new Unroll(byId("unroll"));
    byId("unroll-again").addEventListener("click", () => this.unroll.play());
  }

  show(reply) {
    paint(byId("input"), reply.image);
    byId("input-frame").style.aspectRatio = `${reply.image.width} / ${reply.image.height}`;
    byId("heat").hidden = !reply.heatmap;
    if (reply.heatmap) paint(byId("heat"), reply.heatmap, heat);
    const [x, y] = reply.origin.map((at) => 50 * (at + 1));
    for (const part of this.cross) {
      place(part, { d: `M${x - 6} ${y}h4.5m3 0h4.5M${x} ${y - 6}v4.5m0 3v4.5` });
    }
    moveDot(this.pin, reply.pin);
    this.unroll.show(paint(byId("polar"), reply.polar_image), reply.polar_pin[1]);
    moveDot(this.polarPin, reply.polar_pin);
    const rows = reply.polar_image.height;
    const row = (reply.polar_pin[1] * rows - 0.5 + rows) % rows;
    byId("dot-text").textContent = `the cut: ${((360 * row) / rows).toFixed(0)}°, row ${row.toFixed(1)} of ${rows}`;
    this.#showMaps(reply.features);
    for (const line of this.rows.flat()) place(line, { y1: 100 * reply.polar_pin[1], y2: 100 * reply.polar_pin[1] });
  }

  #showMaps(features) {
    if (this.maps.length !== features.length) this.#makeMaps(features.length);
    features.forEach((map, index) => paint(this.maps[index], map, viridis));
  }

  #makeMaps(count) {
    byId("features").replaceChildren();
    this.rows = this.rows.slice(0, 1);
    this.maps = Array.from({ length: count }, () => {
      const frame = document.createElement("div");
      frame.className = "frame";
      const canvas = document.createElement("canvas");
      frame.append(canvas);
      const svg = element(frame, "svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none" });
      this.rows.push(follower(svg));
      byId("features").append(frame);
      return canvas;
    });
  }
}

// A dot in an SVG of its own, which stays round if the frame is stretched.
function dotOver(frame, id) {
  const svg = element(frame, "svg", { "aria-hidden": "true" });
  return element(svg, "circle", { class: "dot", id, r: 6 });
}

function moveDot(dot, [x, y]) {
  place(dot, { cx: `${(100 * x).toFixed(2)}%`, cy: `${(100 * y).toFixed(2)}%` });
  dot.dataset.x = x;
  dot.dataset.y = y;
}
