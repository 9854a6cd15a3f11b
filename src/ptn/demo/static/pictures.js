// Encoding of images as {width, height, channels, pixels}, the format of the server, and painting on canvases.

export function encode(bytes) {
  let text = "";
  for (let start = 0; start < bytes.length; start += 8192) {
    text += String.fromCharCode(...bytes.subarray(start, start + 8192));
  }
  return btoa(text);
}

export function decode(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let index = 0; index < bytes.length; index++) bytes[index] = letters.charCodeAt(index);
  return bytes;
}

// RGBA colours of the values 0 to 255, each packed into one number in the byte order of ImageData.
function palette(colour) {
  const bytes = new Uint8ClampedArray(4 * 256);
  for (let value = 0; value < 256; value++) bytes.set(colour(value), 4 * value);
  return new Uint32Array(bytes.buffer);
}

const grey = palette((value) => [value, value, value, 255]);
// white, with the value as opacity
export const ink = palette((value) => [255, 255, 255, value]);
// the blue of PTN, with opacity proportional to the value
export const heat = palette((value) => [42, 164, 238, 0.8 * value]);
// viridis: perceptually uniform, readable with colour vision deficiency
const STOPS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
export const viridis = palette((value) => {
  const place = (value / 255) * (STOPS.length - 1);
  const index = Math.min(STOPS.length - 2, Math.floor(place));
  return [...STOPS[index].map((low, channel) => low + (place - index) * (STOPS[index + 1][channel] - low)), 255];
});

// Paints a picture on a canvas, grey ones in the colours of a palette; returns the ImageData.
export function paint(canvas, picture, colours = grey) {
  const { width, height, channels } = picture;
  const bytes = decode(picture.pixels);
  const image = new ImageData(width, height);
  if (channels === 1) {
    const pixels = new Uint32Array(image.data.buffer);
    for (let index = 0; index < pixels.length; index++) pixels[index] = colours[bytes[index]];
  } else {
    for (let from = 0, to = 0; from < bytes.length; from += 3, to += 4) {
      image.data.set(bytes.subarray(from, from + 3), to);
      image.data[to + 3] = 255;
    }
  }
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  canvas.getContext("2d").putImageData(image, 0, 0);
  return image;
}
