// Animation: the image around the origin is cut at the spoke and bends open into its log-polar image.

const SECONDS = 2.4;
const ROWS = 96;
const COLUMNS = 32;

export class Unroll {
  #frame = null;

  constructor(canvas) {
    this.canvas = canvas;
    this.part = 1;
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  // `polar` is {data, width, height}, the pixels of the log-polar image as ImageData; `cut` the row of the spoke (0 to 1).
  show(polar, cut) {
    this.polar = polar;
    this.cut = cut;
    if (!this.#frame) this.draw();
  }

  play() {
    cancelAnimationFrame(this.#frame);
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.part = this.part < 0.75 ? 1 : 0.5; // without motion the button switches between two pictures
      this.draw();
      return;
    }
    const start = performance.now();
    const step = (now) => {
      const part = Math.min(1, (now - start) / (1000 * SECONDS));
      this.part = part * part * (3 - 2 * part);
      this.draw();
      this.#frame = part < 1 ? requestAnimationFrame(step) : null;
    };
    this.#frame = requestAnimationFrame(step);
  }

  // At part 0 the points are on circles around the origin, at part 1 on the rows of the log-polar image.
  draw() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!this.polar || !width) return;
    const sharp = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * sharp);
    this.canvas.height = Math.round(height * sharp);
    const context = this.canvas.getContext("2d");
    context.setTransform(sharp, 0, 0, sharp, 0, 0);
    const at = this.#positions(width, height);
    context.lineWidth = 1;
    for (let row = 0; row < ROWS; row++) {
      for (let column = 0; column < COLUMNS; column++) {
        context.fillStyle = context.strokeStyle = this.#colour((row + 0.5) / ROWS, (column + 0.5) / COLUMNS);
        const corners = [[row, column], [row, column + 1], [row + 1, column + 1], [row + 1, column]];
        context.beginPath();
        for (const [r, c] of corners) context.lineTo(...at(r / ROWS, c / COLUMNS));
        context.fill();
        context.stroke(); // hides the seams between the quadrilaterals
      }
    }
    context.strokeStyle = "#f0e442";
    context.lineWidth = 2;
    for (const edge of [0, 1]) {
      context.beginPath();
      for (let column = 0; column <= COLUMNS; column++) context.lineTo(...at(edge, column / COLUMNS));
      context.stroke();
    }
  }

  // Maps (share of the angle from the cut, share of the log radius) to pixels: an arc whose curvature goes to zero.
  #positions(width, height) {
    const open = this.part;
    const disc = 0.47 * Math.min(width, height); // radius of the disc
    const long = 0.94 * height; // height of the strip
    const wide = Math.min(0.55 * width, long);
    const bend = Math.max(1e-6, 1 - open);
    const middle = long / (2 * Math.PI);
    const radius = middle / bend;
    return (angle, share) => {
      const circle = disc * (Math.exp(3.2 * share) - 1) / (Math.exp(3.2) - 1);
      const offset = (1 - open) * (circle - middle) + open * (share - 0.5) * wide;
      const turn = 2 * Math.PI * (angle - 0.5) * bend;
      // the cut opens to the left; the middle of the strip stays at the right of the disc
      const x = (radius + offset) * Math.cos(turn) - radius + (1 - open) * middle;
      const y = (radius + offset) * Math.sin(turn);
      return [width / 2 + x, height / 2 + y];
    };
  }

  #colour(angle, share) {
    const { data, width, height } = this.polar;
    const row = Math.floor(((angle + this.cut) % 1) * height) % height;
    const at = 4 * (row * width + Math.min(width - 1, Math.floor(share * width)));
    return `rgb(${data[at]} ${data[at + 1]} ${data[at + 2]})`;
  }
}
