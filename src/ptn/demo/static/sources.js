// Sources of images: an MNIST digit, a drawing or a file. A source is
// {picture, canvas, fit, label, blank}. `fit` is the size of its pixels in pixels of the network input at size 1.

import { encode, ink, paint } from "./pictures.js";

const SIDE = 28; // side of MNIST images
const BOX = 20; // side of the bounding box of their ink
const FINE = 10; // pixels of a drawing per MNIST pixel
export const PAD = SIDE * FINE;
const FAINTEST = 24;
const MOST = 512; // maximal side in pixels that the server accepts

export class Unreadable extends Error {}

export function digitSource(digit, model) {
  return finish(digit.image, model.digit_scale, digit.label);
}

// A drawing on a canvas of PAD × PAD pixels, white on transparent.
export function drawingSource(canvas, model) {
  const pixels = canvas.getContext("2d").getImageData(0, 0, PAD, PAD).data;
  const values = new Float32Array(PAD * PAD);
  for (let index = 0; index < values.length; index++) values[index] = pixels[4 * index + 3];
  return inkSource(values, PAD, PAD, model);
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
    const bytes = new Uint8Array(3 * width * height);
    for (let index = 0; index < width * height; index++) bytes.set(pixels.subarray(4 * index, 4 * index + 3), 3 * index);
    const picture = { width, height, channels: 3, pixels: encode(bytes) };
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

// Difference of each pixel from the background, the median of the border; small differences become 0.
function inkOf(values, width, height) {
  const border = [];
  for (let x = 0; x < width; x++) border.push(values[x], values[(height - 1) * width + x]);
  for (let y = 0; y < height; y++) border.push(values[y * width], values[y * width + width - 1]);
  const paper = border.sort((a, b) => a - b)[border.length >> 1];
  const far = values.map((value) => Math.abs(value - paper));
  const most = Math.max(64, far.reduce((a, b) => Math.max(a, b), 0));
  return far.map((value) => Math.max(0, (value / most - 0.2) / 0.8) * 255);
}

// Normalizes ink like MNIST: scaled to a box of 20 pixels, with the centre of mass in the middle of 28 × 28.
function inkSource(values, width, height, model) {
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
  if (mass > 0) {
    const factor = Math.max(right - left + 1, bottom - top + 1) / BOX; // pixels of the source per MNIST pixel
    for (let y = 0; y < SIDE; y++) {
      for (let x = 0; x < SIDE; x++) {
        const startX = atX / mass + (x - SIDE / 2) * factor;
        const startY = atY / mass + (y - SIDE / 2) * factor;
        bytes[y * SIDE + x] = Math.round(average(values, width, height, startX, startY, factor));
      }
    }
  }
  const picture = { width: SIDE, height: SIDE, channels: 1, pixels: encode(bytes) };
  return { ...finish(picture, model.digit_scale, null), blank: mass === 0 };
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
  return { picture, canvas, fit, label, blank: false };
}
