// The interactive image: drawing it, and input by touch, mouse, wheel and keys.

import { INNER } from "./ring.js";
import { PAD } from "./sources.js";
import { element, place } from "./svg.js";

const SHARE = 0.6; // fraction of the stage that is the input of the networks: it fits into the ring
const REACH = 20; // radius of the square grip for pointers, in pixels
const NEAREST = 46; // smallest distance of the grip from the image centre, so that small images can be dragged
const PEN = 21;
export const SIZES = [0.4, 1.6];

export class Stage {
  // `onMove(change)` gets {turn}, {size}, {x, y}; `onDraw()` is called after each stroke of the pen.
  constructor(root, onMove, onDraw) {
    this.root = root;
    this.onMove = onMove;
    this.onDraw = onDraw;
    this.canvas = root.querySelector("canvas");
    this.pad = new OffscreenCanvas(PAD, PAD);
    this.strokes = [];
    this.drawing = false;
    this.pointers = new Map();
    const grips = root.querySelector("#grips");
    this.spoke = element(grips, "line", { class: "spoke" });
    this.square = element(grips, "rect", { class: "square", width: 12, height: 12, rx: 2 });
    this.pin = element(grips, "circle", { class: "dot", r: 5 });
    this.knob = element(grips, "circle", { class: "dot", id: "grip", r: 10 });
    root.addEventListener("pointerdown", (event) => this.#press(event));
    root.addEventListener("pointermove", (event) => this.#move(event));
    for (const end of ["pointerup", "pointercancel"]) root.addEventListener(end, (event) => this.#release(event));
    root.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    root.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.state && this.show(this.state)).observe(root);
  }

  // Screen pixels per pixel of the network input.
  get #zoom() {
    return (SHARE * this.root.clientWidth) / Math.max(this.state.model.width, this.state.model.height);
  }

  get #middle() {
    const half = this.root.clientWidth / 2;
    return [half + this.state.x * this.#zoom, half + this.state.y * this.#zoom];
  }

  // Screen position of a point of the picture, (right, down) in picture pixels from its middle.
  #onScreen(right, down) {
    const { turn, size, source } = this.state;
    const angle = (turn * Math.PI) / 180;
    const factor = size * source.fit * this.#zoom;
    const [x, y] = this.#middle;
    return [
      x + factor * (right * Math.cos(angle) - down * Math.sin(angle)),
      y + factor * (right * Math.sin(angle) + down * Math.cos(angle)),
    ];
  }

  show(state) {
    this.state = state;
    const side = this.root.clientWidth;
    const sharp = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(side * sharp)) this.canvas.width = this.canvas.height = Math.round(side * sharp);
    const context = this.canvas.getContext("2d");
    const { width, height } = state.model;
    const [wide, high] = this.drawing ? [SHARE * side, SHARE * side] : [width * this.#zoom, height * this.#zoom];
    const clutter = this.drawing ? null : state.clutter;
    const [left, top] = [(side - wide) / 2, (side - high) / 2];
    context.setTransform(sharp, 0, 0, sharp, 0, 0);
    context.clearRect(0, 0, side, side);
    context.imageSmoothingQuality = "high";
    if (!this.drawing) {
      context.globalAlpha = 0.28;
      this.#drawSource(context);
      context.globalAlpha = 1;
    }
    context.save();
    context.beginPath();
    context.rect(left, top, wide, high);
    context.clip();
    context.fillStyle = "#000";
    context.fillRect(left, top, wide, high);
    if (this.drawing) context.drawImage(this.pad, left, top, wide, high);
    else this.#drawSource(context);
    if (clutter) {
      context.globalCompositeOperation = "lighten";
      context.drawImage(clutter.canvas, left, top, wide, high);
    }
    context.restore();
    context.strokeStyle = "rgb(255 255 255 / 0.35)";
    context.strokeRect(left - 0.5, top - 0.5, wide + 1, high + 1);
    this.#showGrips();
  }

  #drawSource(context) {
    const { turn, size, source } = this.state;
    const { canvas } = source;
    const [x, y] = this.#middle;
    context.save();
    context.translate(x, y);
    context.rotate((turn * Math.PI) / 180);
    const factor = size * source.fit * this.#zoom;
    context.scale(factor, factor);
    context.drawImage(canvas, -canvas.width / 2, -canvas.height / 2);
    context.restore();
  }

  #showGrips() {
    const { pin, turn } = this.state;
    const [x, y] = this.#middle;
    const [pinX, pinY] = this.#onScreen(0, pin[1]);
    const [half, angle] = [this.root.clientWidth / 2, (turn * Math.PI) / 180];
    const knob = [half + 2 * half * INNER * Math.sin(angle), half - 2 * half * INNER * Math.cos(angle)];
    const far = Math.max(NEAREST, Math.hypot(pinX - x, pinY - y));
    const square = [far * Math.cos(angle + Math.PI / 4) + x, far * Math.sin(angle + Math.PI / 4) + y];
    place(this.spoke, { x1: x, y1: y, x2: pinX, y2: pinY });
    place(this.pin, { cx: pinX, cy: pinY });
    place(this.square, { x: square[0] - 6, y: square[1] - 6 });
    place(this.knob, { cx: knob[0], cy: knob[1] });
    this.grip = square;
  }

  // Removes the last stroke, or all of them, and draws the others again.
  undo(all = false) {
    const kept = all ? [] : this.strokes.slice(0, -1);
    this.pad.getContext("2d").clearRect(0, 0, PAD, PAD);
    this.strokes = [];
    for (const points of kept) points.forEach((at, index) => this.#line(points[Math.max(0, index - 1)], at, index === 0));
    this.onDraw();
  }

  #at(event) {
    const box = this.root.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  #press(event) {
    if (event.button !== 0) return;
    event.preventDefault();
    this.root.focus({ preventScroll: true });
    this.root.setPointerCapture(event.pointerId);
    const at = this.#at(event);
    this.pointers.set(event.pointerId, at);
    if (this.drawing) {
      this.#stroke(at, at, true);
      return;
    }
    const half = this.root.clientWidth / 2;
    const onRing = distance(at, [half, half]) > 2 * half * INNER - 14;
    this.hold = onRing ? "turning" : distance(at, this.grip) < REACH ? "scaling" : "moving";
    this.root.classList.add("busy", this.hold);
  }

  #move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const at = this.#at(event);
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    this.pointers.set(event.pointerId, at);
    const { turn, size, x, y } = this.state;
    const middle = this.#middle;
    if (this.drawing) {
      this.#stroke(before, at);
    } else if (other) {
      const factor = distance(other, at) / Math.max(1, distance(other, before));
      const shift = [(at[0] - before[0]) / 2 / this.#zoom, (at[1] - before[1]) / 2 / this.#zoom];
      this.onMove({ turn: turn + angleFrom(other, before, at), size: size * factor, x: x + shift[0], y: y + shift[1] });
    } else if (this.hold === "turning") {
      const half = this.root.clientWidth / 2;
      this.onMove({ turn: turn + angleFrom([half, half], before, at) });
    } else if (this.hold === "scaling") {
      this.onMove({ size: (size * distance(middle, at)) / Math.max(1, distance(middle, before)) });
    } else {
      this.onMove({ x: x + (at[0] - before[0]) / this.#zoom, y: y + (at[1] - before[1]) / this.#zoom });
    }
  }

  #release(event) {
    if (!this.pointers.delete(event.pointerId)) return;
    this.root.classList.remove("busy", "turning", "scaling", "moving");
  }

  #stroke(from, to, begins = false) {
    const side = this.root.clientWidth;
    const onPad = (point) => point.map((at) => ((at - ((1 - SHARE) / 2) * side) / (SHARE * side)) * PAD);
    this.#line(onPad(from), onPad(to), begins);
    this.onDraw();
  }

  #line(from, to, begins) {
    if (begins) this.strokes.push([]);
    this.strokes.at(-1).push(to);
    const context = this.pad.getContext("2d");
    context.strokeStyle = "#fff";
    context.lineWidth = PEN;
    context.lineCap = context.lineJoin = "round";
    context.beginPath();
    context.moveTo(...from);
    context.lineTo(...to);
    context.stroke();
  }

  #wheel(event) {
    event.preventDefault();
    if (this.drawing) return;
    const amount = (event.deltaY || event.deltaX) * (event.deltaMode === 1 ? 20 : 1);
    const { turn, size } = this.state;
    this.onMove(event.shiftKey || event.ctrlKey ? { size: size * Math.exp(-amount / 800) } : { turn: turn + amount / 10 });
  }

  #key(event) {
    if (this.drawing || event.altKey || event.ctrlKey || event.metaKey) return;
    const { turn, size, x, y, model } = this.state;
    const step = model.width / 56;
    const change = {
      ArrowLeft: event.shiftKey ? { turn: turn - 5 } : { x: x - step },
      ArrowRight: event.shiftKey ? { turn: turn + 5 } : { x: x + step },
      ArrowUp: event.shiftKey ? { size: size * 1.05 } : { y: y - step },
      ArrowDown: event.shiftKey ? { size: size / 1.05 } : { y: y + step },
    }[event.key];
    if (!change) return;
    event.preventDefault();
    this.onMove(change);
  }
}

const distance = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);

// Angle in degrees between two points around `middle`.
function angleFrom(middle, from, to) {
  const angle = (point) => Math.atan2(point[1] - middle[1], point[0] - middle[0]);
  return (((angle(to) - angle(from)) * 180) / Math.PI + 540) % 360 - 180;
}
