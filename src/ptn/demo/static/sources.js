// Sources of images: a test image, a drawing or a file. A source is {picture, canvas, fit, label, blank, pose}.
// `fit` is the size of its pixels in pixels of the network input at size 1; `pose` is the initial pose.

import { encode, ink, paint } from "./pictures.js";

const SIDE = 28; // side of MNIST images
const BOX = 20; // side of the bounding box of their ink
const FINE = 10; // pixels of a drawing per MNIST pixel
export const PAD = SIDE * FINE;
const FAINTEST = 24;
const MOST = 512; // maximal side in pixels that the server accepts

export class Unreadable extends Error {}

// The images of a sheet of `side` × `side` pixels each, as {picture, label}.
export async function readSheet(address, { side, labels }) {
  const bitmap = await createImageBitmap(await (await fetch(address)).blob(), { colorSpaceConversion: "none" });
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  const columns = bitmap.width / side;
  const read = (index) => context.getImageData((index % columns) * side, Math.floor(index / columns) * side, side, side).data;
  return labels.map((label, index) => ({ label, rgba: () => read(index), side }));
}

// The picture of a test image with the given number of channels.
export function samplePicture({ rgba, side }, channels) {
  return { width: side, height: side, channels, pixels: encode(pack(rgba(), channels)) };
}

// The first `channels` of each pixel of RGBA bytes.
function pack(rgba, channels) {
  const bytes = new Uint8Array((rgba.length / 4) * channels);
  for (let index = 0; index < rgba.length / 4; index++) bytes.set(rgba.subarray(4 * index, 4 * index + channels), channels * index);
  return bytes;
}

export function sampleSource(sample, model) {
  const colour = model.samples === "photographs";
  return finish(samplePicture(sample, colour ? 3 : 1), colour ? model.width / 32 : model.digit_scale, sample.label);
}

// Fragments of other digits around the middle of the input of a network: {picture, canvas}. Equal seeds give equal clutter.
export function makeClutter(samples, model, count, seed) {
  let state = seed;
  const random = () => (state = (state * 1664525 + 1013904223) % 2 ** 32) / 2 ** 32;
  const canvas = new OffscreenCanvas(model.width, model.height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#000";
  context.fillRect(0, 0, model.width, model.height);
  context.globalCompositeOperation = "lighten";
  for (let index = 0; index < count; index++) {
    const sample = samples[Math.floor(random() * samples.length)];
    const source = finish(samplePicture(sample, 1), 1, null).canvas;
    const side = 5;
    const [away, angle] = [0.3 + 0.2 * random(), (2 * Math.PI * (index + random())) / count];
    context.save();
    context.translate((0.5 + away * Math.cos(angle)) * model.width, (0.5 + away * Math.sin(angle)) * model.height);
    context.rotate(2 * Math.PI * random());
    context.scale(model.digit_scale, model.digit_scale);
    context.drawImage(source, 9 + 8 * random(), 6 + 14 * random(), side, side, -side / 2, -side / 2, side, side);
    context.restore();
  }
  const rgba = context.getImageData(0, 0, model.width, model.height).data;
  return { canvas, picture: { width: model.width, height: model.height, channels: 1, pixels: encode(pack(rgba, 1)) } };
}

// A drawing on a canvas of PAD × PAD pixels, white on transparent.
export function drawingSource(canvas, model) {
  const pixels = canvas.getContext("2d").getImageData(0, 0, PAD, PAD).data;
  const values = new Float32Array(PAD * PAD);
  for (let index = 0; index < values.length; index++) values[index] = pixels[4 * index + 3];
  return inkSource(values, PAD, PAD, model, model.placed);
}

export async function readFile(file) {
  try {
    return await createImageBitmap(file);
  } catch {
    throw new Unreadable(`“${file.name}” is not an image that this browser can read.`);
  }
}

// The image of a file: for grey networks ink extracted from the background, dark or light; for colour networks unchanged.
export function fileSource(bitmap, model) {
  const grey = model.channels === 1;
  const longest = grey ? PAD : Math.min(MOST, 2 * Math.max(model.width, model.height));
  const factor = Math.min(1, longest / Math.max(bitmap.width, bitmap.height));
  const width = Math.max(1, Math.round(bitmap.width * factor));
  const height = Math.max(1, Math.round(bitmap.height * factor));
  const pixels = shrink(bitmap, width, height);
  if (!grey) {
    const picture = { width, height, channels: 3, pixels: encode(pack(pixels, 3)) };
    return finish(picture, Math.min(model.width / width, model.height / height), null);
  }
  const values = new Float32Array(width * height);
  for (let index = 0; index < values.length; index++) {
    const [red, green, blue] = pixels.subarray(4 * index, 4 * index + 3);
    values[index] = 0.299 * red + 0.587 * green + 0.114 * blue;
  }
  return inkSource(inkOf(values, width, height), width, height, model);
}

function shrink(bitmap, width, height) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  context.fillStyle = "#fff"; // blend transparent pixels with white
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, width, height);
  return context.getImageData(0, 0, width, height).data;
}

// Difference of each pixel from the background; small differences become 0. The background is a plane through the
// medians of the four sides, because light on paper is rarely even.
function inkOf(values, width, height) {
  const median = (count, at) => Array.from({ length: count }, (_, step) => values[at(step)]).sort((a, b) => a - b)[count >> 1];
  const [left, right] = [0, width - 1].map((x) => median(height, (y) => y * width + x));
  const [top, bottom] = [0, height - 1].map((y) => median(width, (x) => y * width + x));
  const far = values.map((value, index) => {
    const x = ((index % width) + 0.5) / width - 0.5;
    const y = (Math.floor(index / width) + 0.5) / height - 0.5;
    return Math.abs(value - (left + right + top + bottom) / 4 - (right - left) * x - (bottom - top) * y);
  });
  const most = Math.max(64, far.reduce((a, b) => Math.max(a, b), 0));
  return far.map((value) => Math.max(0, (value / most - 0.2) / 0.8) * 255);
}

// Normalizes ink like MNIST: scaled to a box of 20 pixels, with the centre of mass in the middle of 28 × 28, and the
// darkest ink white. With `keep` the pose restores its position and size.
function inkSource(values, width, height, model, keep = false) {
  let [left, right, top, bottom, mass, atX, atY] = [width, -1, height, -1, 0, 0, 0];
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const value = values[y * width + x];
      if (value < FAINTEST) continue;
      [left, right, top, bottom] = [Math.min(left, x), Math.max(right, x), Math.min(top, y), Math.max(bottom, y)];
      mass += value;
      atX += value * (x + 0.5);
      atY += value * (y + 0.5);
    }
  }
  const bytes = new Uint8Array(SIDE * SIDE);
  let pose = null;
  if (mass > 0) {
    const factor = Math.max(right - left + 1, bottom - top + 1) / BOX; // pixels of the source per MNIST pixel
    for (let y = 0; y < SIDE; y++) {
      for (let x = 0; x < SIDE; x++) {
        const startX = atX / mass + (x - SIDE / 2) * factor;
        const startY = atY / mass + (y - SIDE / 2) * factor;
        bytes[y * SIDE + x] = Math.round(average(values, width, height, startX, startY, factor));
      }
    }
    const brightest = bytes.reduce((a, b) => Math.max(a, b), 1);
    for (let index = 0; index < bytes.length; index++) bytes[index] = Math.min(255, (255 * bytes[index]) / brightest);
    if (keep) {
      const pixel = model.width / width; // of the source, in pixels of the input
      pose = { size: (factor * pixel) / model.digit_scale, x: (atX / mass - width / 2) * pixel, y: (atY / mass - height / 2) * pixel };
    }
  }
  const picture = { width: SIDE, height: SIDE, channels: 1, pixels: encode(bytes) };
  return { ...finish(picture, model.digit_scale, null), blank: mass === 0, pose };
}

function average(values, width, height, startX, startY, side) {
  const steps = Math.max(1, Math.ceil(side));
  let sum = 0;
  for (let j = 0; j < steps; j++) {
    const y = Math.floor(startY + ((j + 0.5) * side) / steps);
    if (y < 0 || y >= height) continue;
    for (let i = 0; i < steps; i++) {
      const x = Math.floor(startX + ((i + 0.5) * side) / steps);
      if (x >= 0 && x < width) sum += values[y * width + x];
    }
  }
  return sum / (steps * steps);
}

function finish(picture, fit, label) {
  const canvas = new OffscreenCanvas(picture.width, picture.height);
  paint(canvas, picture, ink);
  return { picture, canvas, fit, label, blank: false, pose: null };
}
