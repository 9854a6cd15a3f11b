// Pictures as the server sends them, {width, height, channels, pixels}, on canvases.

export function encode(bytes) {
  let text = "";
  for (let start = 0; start < bytes.length; start += 8192) {
    text += String.fromCharCode(...bytes.subarray(start, start + 8192));
  }
  return btoa(text);
}

function decode(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

const grey = (value) => [value, value, value, 255];
// bright where there is ink, transparent where there is none
export const ink = (value) => [255, 255, 255, value];
// PTN's blue, the more of it the hotter
export const heat = (value) => [42, 164, 238, 0.8 * value];

// viridis, which has the same order for every eye
const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
export function viridis(value) {
  const place = (value / 255) * (VIRIDIS.length - 1);
  const index = Math.min(VIRIDIS.length - 2, Math.floor(place));
  const part = place - index;
  return [...VIRIDIS[index].map((low, channel) => low + part * (VIRIDIS[index + 1][channel] - low)), 255];
}

// Paint a picture pixel by pixel; `colour` maps the values of grey ones to red, green, blue and opacity.
export function paint(canvas, picture, colour = grey) {
  const { width, height, channels } = picture;
  const bytes = decode(picture.pixels);
  const image = new ImageData(width, height);
  for (let pixel = 0; pixel < width * height; pixel++) {
    const values = channels === 3 ? [...bytes.subarray(3 * pixel, 3 * pixel + 3), 255] : colour(bytes[pixel]);
    image.data.set(values, 4 * pixel);
  }
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  canvas.getContext("2d").putImageData(image, 0, 0);
}
