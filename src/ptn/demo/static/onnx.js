// Runs the networks in the browser, by ONNX Runtime; the calls and replies are those of the server.

import * as ort from "./ort.wasm.min.mjs";
import { decode, encode } from "./pictures.js";

const LUMA = [0.299, 0.587, 0.114];
const MOST = 8; // limit of the supersampling of images that are scaled down
const CHUNK = 24; // images that are classified at once

ort.env.wasm.numThreads = 1; // more threads need headers that a static host may not send
ort.env.wasm.wasmPaths = new URL(".", import.meta.url).href;

export class Onnx {
  #sessions = new Map();
  #last = Promise.resolve(); // a session runs one call at a time

  // `sheets` has the test images by kind, as readSheet returns them.
  constructor(setup, sheets) {
    this.setup = setup;
    this.sheets = sheets;
  }

  look = async (body) => {
    const model = this.#model(body);
    const canvas = place([body.image], [body.turn], body, model);
    const results = await this.#run(model, canvas, 1);
    const origin = [...results.origin.data];
    const [height, width] = [model.height, model.width];
    const at = pinOf(body, width, height);
    const maps = results.features;
    const area = maps ? maps.dims[2] * maps.dims[3] : 0;
    return {
      image: toPicture(canvas, model.channels, height, width),
      origin,
      heatmap: results.heatmap ? toPicture(results.heatmap.data, 1, ...results.heatmap.dims.slice(1)) : null,
      polar_image: toPicture(results.polar_image.data, ...results.polar_image.dims.slice(1)),
      features: Array.from({ length: maps ? maps.dims[1] : 0 }, (_, map) => toPicture(maps.data.subarray(map * area, (map + 1) * area), 1, ...maps.dims.slice(2))),
      pin: at,
      polar_pin: inPolar(model, at, origin),
      polar_probabilities: [...results.polar_probabilities.data],
      plain_probabilities: results.plain_probabilities ? [...results.plain_probabilities.data] : null,
    };
  };

  ring = async (body) => {
    const model = this.#model(body);
    const turns = Array.from({ length: this.setup.ring }, (_, step) => (360 * step) / this.setup.ring);
    return this.#predict(model, turns.map(() => body.image), turns, body);
  };

  test = async (body) => {
    const model = this.#model(body);
    const samples = this.sheets[model.samples];
    const channels = model.samples === "photographs" ? 3 : 1;
    const images = samples.map(({ rgba, side }) => ({ width: side, height: side, channels, rgba }));
    const predictions = await this.#predict(model, images, images.map(() => body.turn), body);
    const expected = samples.map(({ label }) => model.classes.indexOf(String(label)));
    const correct = (labels) => labels && labels.filter((label, index) => label === expected[index]).length;
    return { count: samples.length, polar: correct(predictions.polar), plain: correct(predictions.plain) };
  };

  #model({ model: key }) {
    return this.setup.models.find((model) => model.key === key);
  }

  async #predict(model, images, turns, body) {
    const labels = { polar: [], plain: model.plain_name ? [] : null };
    for (let start = 0; start < images.length; start += CHUNK) {
      const part = images.slice(start, start + CHUNK);
      const canvas = place(part, turns.slice(start, start + CHUNK), body, model);
      const results = await this.#run(model, canvas, part.length, ["polar_probabilities", ...(labels.plain ? ["plain_probabilities"] : [])]);
      for (const name of ["polar", "plain"]) {
        if (!labels[name]) continue;
        const { data, dims } = results[`${name}_probabilities`];
        for (let row = 0; row < part.length; row++) {
          const scores = data.subarray(row * dims[1], (row + 1) * dims[1]);
          labels[name].push(scores.indexOf(Math.max(...scores)));
        }
      }
    }
    return labels;
  }

  async #run(model, canvas, count, outputs) {
    if (!this.#sessions.has(model.key)) {
      this.#sessions.set(model.key, ort.InferenceSession.create(new URL(model.onnx, import.meta.url).href));
    }
    const session = await this.#sessions.get(model.key);
    const images = new ort.Tensor("float32", canvas, [count, model.channels, model.height, model.width]);
    const result = this.#last.then(() => session.run({ images }, outputs ?? session.outputNames));
    this.#last = result.catch(() => null); // the caller gets the error
    return result;
  }
}

// Images, each rotated by one of `turns` and placed by the scale and shift of `body`: floats (N, channels, h, w).
// The samples are those of place() in inspect.py: bilinear, black outside, supersampled if the image is scaled down.
export function place(images, turns, { scale, shift, clutter }, { channels, height, width }) {
  const canvas = new Float32Array(images.length * channels * height * width);
  const factor = Math.min(MOST, Math.max(1, roundHalfEven(1 / scale)));
  const added = clutter ? decode(clutter.pixels) : null;
  let previous, source;
  images.forEach((image, index) => {
    if (image !== previous) source = planes(image, channels);
    previous = image;
    const angle = (turns[index] * Math.PI) / 180;
    const [cos, sin] = [Math.cos(angle) / (scale * factor), Math.sin(angle) / (scale * factor)];
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        const sums = new Float64Array(source.length);
        for (let j = 0; j < factor; j++) {
          const down = y * factor + j - (height * factor - 1) / 2 - factor * shift[1];
          for (let i = 0; i < factor; i++) {
            const right = x * factor + i - (width * factor - 1) / 2 - factor * shift[0];
            const fromX = cos * right + sin * down + (image.width - 1) / 2;
            const fromY = cos * down - sin * right + (image.height - 1) / 2;
            source.forEach((plane, channel) => (sums[channel] += bilinear(plane, image.width, image.height, fromX, fromY)));
          }
        }
        for (let channel = 0; channel < channels; channel++) {
          let value = sums[Math.min(channel, source.length - 1)] / factor ** 2;
          if (added) value = Math.max(value, added[y * width + x] / 255);
          canvas[((index * channels + channel) * height + y) * width + x] = value;
        }
      }
    }
  });
  return canvas;
}

// Python rounds halves to even numbers.
function roundHalfEven(value) {
  const rounded = Math.round(value);
  return Math.abs(value % 1) === 0.5 && rounded % 2 ? rounded - 1 : rounded;
}

// The channels of an image as floats in [0, 1]; colours are mixed to grey for a grey network.
function planes(image, channels) {
  const area = image.width * image.height;
  const step = image.rgba ? 4 : image.channels;
  const bytes = image.rgba ? image.rgba() : decode(image.pixels);
  const own = Array.from({ length: image.channels }, (_, channel) => Float32Array.from({ length: area }, (_, at) => bytes[at * step + channel] / 255));
  if (image.channels !== 3 || channels !== 1) return own;
  return [own[0].map((red, at) => LUMA[0] * red + LUMA[1] * own[1][at] + LUMA[2] * own[2][at])];
}

function bilinear(plane, width, height, x, y) {
  const [left, top] = [Math.floor(x), Math.floor(y)];
  const [right, down] = [x - left, y - top];
  const at = (column, row) => (column >= 0 && column < width && row >= 0 && row < height ? plane[row * width + column] : 0);
  return (
    (1 - down) * ((1 - right) * at(left, top) + right * at(left + 1, top)) +
    down * ((1 - right) * at(left, top + 1) + right * at(left + 1, top + 1))
  );
}

// The tracked point in the input of the networks, as fractions.
function pinOf({ turn, scale, shift, pin }, width, height) {
  const angle = (turn * Math.PI) / 180;
  const x = scale * (pin[0] * Math.cos(angle) - pin[1] * Math.sin(angle)) + shift[0];
  const y = scale * (pin[0] * Math.sin(angle) + pin[1] * Math.cos(angle)) + shift[1];
  return [0.5 + x / width, 0.5 + y / height];
}

// The tracked point in the log-polar image.
function inPolar({ grid, width, height }, pin, origin) {
  const x = (pin[0] - (origin[0] + 1) / 2) * width;
  const y = (pin[1] - (origin[1] + 1) / 2) * height;
  const radius = Math.max(Math.hypot(x, y), 1e-3);
  const share = grid.law === "linear" ? radius / grid.r_max_px : Math.log(radius / grid.r_min_px) / Math.log(grid.r_max_px / grid.r_min_px);
  const row = (Math.atan2(y, x) / (2 * Math.PI)) * grid.angles;
  return [share + 0.5 / grid.radii, (((row + 0.5) / grid.angles) % 1 + 1) % 1];
}

// Values (channels, height, width) in [0, 1] as bytes, channels last.
function toPicture(values, channels, height, width) {
  const bytes = new Uint8ClampedArray(channels * height * width);
  for (let channel = 0; channel < channels; channel++) {
    for (let at = 0; at < height * width; at++) bytes[at * channels + channel] = 255 * values[channel * height * width + at];
  }
  return { width, height, channels, pixels: encode(bytes) };
}
