// State of the page, its controls, and calls of the networks.

import { Answers, best, networksOf } from "./answers.js";
import { Latest, Refusal, Server } from "./engine.js";
import { ink, paint } from "./pictures.js";
import { Ring } from "./ring.js";
import { Sight } from "./sight.js";
import { drawingSource, fileSource, makeClutter, readFile, readSheet, samplePicture, sampleSource, Unreadable } from "./sources.js";
import { SIZES, Stage } from "./stage.js";

const byId = (id) => document.getElementById(id);
const OPENING = 6; // seconds
const SHOWN = 10; // test images to choose from
const REST = 600; // milliseconds without movement after which results are read aloud
const KEPT = 101; // number of latencies in the median
const UPRIGHT = { turn: 0, size: 1, x: 0, y: 0 };

const sight = new Sight();
const answers = new Answers(byId("verdicts"), byId("bars"));
const ring = new Ring(byId("ring"));
const stage = new Stage(byId("stage"), move, drawn);

let setup, engine, asker, ringAsker;
const sheets = {}; // test images by kind
let makeSource; // model -> source
const state = { ...UPRIGHT, model: null, source: null, truth: null, clutter: null, pin: [0, 0] };
let first = 0; // index of the first test image shown
let spinning = null; // the animation in progress
let touched = false; // the opening scene ends at the first input
let resting = null; // timer of the live region
let ringKey = null; // key of the state for which the ring shows predictions
const latencies = [];

async function start() {
  setup = await (await fetch("setup.json")).json();
  engine = setup.runtime ? new (await import("./onnx.js")).Onnx(setup, sheets) : new Server();
  asker = new Latest(engine.look);
  ringAsker = new Latest(engine.ring);
  for (const [kind, sheet] of Object.entries(setup.samples)) sheets[kind] = await readSheet(`${kind}.png`, sheet);
  for (const [name, address] of Object.entries(setup.links ?? {})) byId("links").append(link(name, address));
  if (frameElement) fitFrame();
  showRegimes();
  wire();
  setModel(setup.models[0]);
  await opening();
}

// In another page, the frame is as high as its content, and has the light or dark colours of that page.
function fitFrame() {
  new ResizeObserver(() => (frameElement.style.height = `${document.body.offsetHeight + 2}px`)).observe(document.body);
  const recolour = () => {
    const { colorScheme } = parent.getComputedStyle(frameElement);
    document.documentElement.style.colorScheme = colorScheme === "normal" ? "" : colorScheme;
  };
  new MutationObserver(recolour).observe(parent.document.body, { attributes: true });
  recolour();
}

function wire() {
  byId("more").addEventListener("change", ({ target }) => target.value && setModel(modelOf(target.value)));
  for (const name of ["turn", "size"]) {
    byId(name).addEventListener("input", ({ target }) => {
      const change = { [name]: Number(target.value) };
      setDrawing(false);
      move(change);
    });
  }
  byId("draw").addEventListener("click", () => setDrawing(!stage.drawing));
  byId("done").addEventListener("click", () => setDrawing(false));
  byId("undo").addEventListener("click", () => stage.undo());
  byId("clear").addEventListener("click", () => stage.undo(true));
  byId("another").addEventListener("click", () => another());
  byId("test").addEventListener("click", test);
  byId("truth").addEventListener("change", ({ target }) => setTruth(target.value === "" ? null : Number(target.value)));
  for (const button of document.querySelectorAll("[data-preset]")) {
    button.addEventListener("click", () => {
      if (state.source.label !== null) setTruth(inClasses(state.source.label));
      presets[button.dataset.preset]();
    });
  }
  byId("samples").addEventListener("keydown", rove);
  byId("open").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", (event) => {
    if (event.target.files.length) open(event.target.files[0]);
    event.target.value = "";
  });
  for (const kind of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      document.body.classList.toggle("dropping", kind === "dragover");
      if (kind === "drop" && event.dataTransfer.files.length) open(event.dataTransfer.files[0]);
    });
  }
  for (const part of document.querySelectorAll(".try, .controls")) {
    part.addEventListener("click", ({ target }) => {
      const narrow = matchMedia("(max-width: 860px)").matches; // the image is above the controls
      if (target.closest(narrow ? "button:not(#test)" : "#draw")) byId("stage").scrollIntoView({ block: "nearest" });
    });
  }
  for (const kind of ["pointerdown", "keydown", "wheel"]) {
    document.addEventListener(kind, () => { touched = true; stop(); }, { capture: true, passive: true });
  }
}

// Networks: two regimes, and the others under "More".

const modelOf = (key) => setup.models.find((model) => model.key === key);

function showRegimes() {
  const main = setup.models.filter(({ regime }) => regime);
  byId("regimes").replaceChildren(...main.map(({ key, regime }) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = regime;
    button.dataset.key = key;
    button.addEventListener("click", () => setModel(modelOf(key)));
    return button;
  }));
  const others = setup.models.filter(({ regime }) => !regime);
  byId("more").replaceChildren(new Option("other networks", ""), ...others.map(({ key, title }) => new Option(title, key)));
  byId("more-label").hidden = !others.length;
}

function setModel(model) {
  stop();
  const { samples: kind, width } = state.model ?? {};
  const { turn, size, x, y } = state;
  state.model = model;
  state.clutter = null;
  byId("more").value = model.regime ? "" : model.key;
  for (const button of byId("regimes").children) button.setAttribute("aria-pressed", String(button.dataset.key === model.key));
  byId("about").textContent = model.about;
  const thing = model.classes.every((name) => /^\d$/.test(name)) ? "digit" : "image";
  for (const word of document.querySelectorAll(".thing")) word.textContent = thing;
  for (const part of document.querySelectorAll(".pair")) part.hidden = !model.plain_name;
  answers.prepare(model);
  byId("overall").replaceChildren(...(model.tests ? comparison(model.tests, [model.polar_accuracy, model.plain_accuracy]) : []));
  byId("truth").replaceChildren(new Option("unknown", ""), ...model.classes.map((name, label) => new Option(name, label)));
  byId("test").hidden = !model.tested;
  byId("test").textContent = `Test all ${sheets[model.samples].length.toLocaleString("en")} in this pose`;
  const grey = model.samples === "digits";
  for (const preset of ["clutter", "six"]) document.querySelector(`[data-preset=${preset}]`).hidden = !grey;
  if (kind !== model.samples || !makeSource) {
    first = 0;
    showSamples();
    pick(first);
  } else {
    setSource(makeSource, { turn, size, x: (x * model.width) / width, y: (y * model.width) / width });
  }
}

// Test images, a radio group with one tab stop.

function showSamples() {
  const { samples, channels } = state.model;
  byId("samples").replaceChildren(...sheets[samples].slice(first, first + SHOWN).map((sample, index) => {
    const button = document.createElement("button");
    const canvas = document.createElement("canvas");
    button.type = "button";
    button.setAttribute("role", "radio");
    button.setAttribute("aria-checked", "false");
    button.setAttribute("aria-label", `image ${first + index + 1}, a ${sample.label}`);
    button.tabIndex = index ? -1 : 0;
    button.dataset.index = first + index;
    button.addEventListener("click", () => pick(first + index));
    const colour = samples === "photographs";
    paint(canvas, samplePicture(sample, colour ? 3 : 1), colour ? undefined : ink);
    button.append(canvas);
    return button;
  }));
}

function rove(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const buttons = [...byId("samples").children];
  const at = buttons.indexOf(document.activeElement);
  if (!step || at < 0) return;
  event.preventDefault();
  const next = buttons[(at + step + buttons.length) % buttons.length];
  next.focus();
  next.click();
}

function pick(index, pose = UPRIGHT) {
  setDrawing(false);
  const sample = sheets[state.model.samples][index];
  setSource((model) => sampleSource(model.samples === state.model.samples ? sample : sheets[model.samples][0], model), pose);
  for (const button of byId("samples").children) {
    const chosen = Number(button.dataset.index) === index;
    button.setAttribute("aria-checked", String(chosen));
    button.tabIndex = chosen ? 0 : -1;
  }
}

function another() {
  first = (first + SHOWN) % sheets[state.model.samples].length;
  showSamples();
  pick(first, state);
}

// Shows the first test image of a class.
function pickLabel(label, pose) {
  const index = sheets[state.model.samples].findIndex((sample) => sample.label === label);
  first = SHOWN * Math.floor(index / SHOWN);
  showSamples();
  pick(index, pose);
}

// Presets. They keep the current image where possible.

const reach = () => Math.min(state.model.width, state.model.height);
const presets = {
  upright: () => move({ ...UPRIGHT, clutter: null }),
  rotate: () => {
    refreshRing();
    return animate((part) => ({ turn: state.from + 360 * part }), 5);
  },
  shrink: () => animate((part) => ({ size: 1 - 0.5 * part, x: 0, y: 0 }), 1.5),
  move: () => animate((part) => ({ x: 0.2 * reach() * Math.sin(2 * Math.PI * part), y: 0.2 * reach() * (Math.cos(2 * Math.PI * part) - 1) }), 4),
  clutter: () => {
    const trained = setup.models.find(({ key }) => key.includes("sim2mnist"));
    if (trained && trained !== state.model) setModel(trained);
    move({ ...UPRIGHT, turn: 45, size: 0.7, clutter: makeClutter(sheets.digits, state.model, 12, 7) });
    note("Both networks were trained on digits at any angle with two fragments of other digits. This image has twelve fragments.");
  },
  six: () => {
    state.clutter = null;
    pickLabel(9, { ...UPRIGHT, turn: 180 });
    setTruth(null);
    note("A 9 rotated by 180° looks like a 6. The polar network is invariant to rotation, so it predicts the same class at every angle. Where orientation carries information, use a plain network.");
  },
  flip: () => {
    move({ ...UPRIGHT, turn: 180, clutter: null });
    if (state.model.about.includes("upright")) note("The networks were trained on upright images only. For the polar network a rotation by 180° is a shift by half of the rows; the plain CNN misclassifies most digits.");
  },
  edge: () => {
    move({ ...UPRIGHT, x: 0.46 * reach(), clutter: null });
    note("Part of the object is outside the image. Both networks fail at many angles, and the predicted centre is too far inside.");
  },
};

// Moves by `poseAt(part)`, part from 0 to 1, for some seconds, until a touch or key.
async function animate(poseAt, seconds) {
  setDrawing(false);
  note(null);
  state.from = state.turn;
  if (state.source.blank) return;
  const mine = (spinning = {});
  const began = performance.now();
  for (let part = 0; part < 1 && spinning === mine; ) {
    await new Promise(requestAnimationFrame);
    if (spinning !== mine) return;
    part = matchMedia("(prefers-reduced-motion: reduce)").matches ? 1 : Math.min(1, (performance.now() - began) / (1000 * seconds));
    move({ ...poseAt(part), animated: true });
  }
  stop();
}

// The first six seconds: an off-centre digit rotates, and the ring fills; a still picture without motion.
async function opening() {
  const shift = { x: 0.13 * reach(), y: -0.09 * reach() };
  move({ ...shift, turn: 0 });
  const predictions = await refreshRing();
  await seen(byId("stage"));
  if (!predictions || touched) return;
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
    move({ turn: 60 });
    return;
  }
  const steps = predictions[0].length;
  await animate((part) => {
    const turned = 420 * part;
    showRing(predictions, Math.min(steps, 1 + Math.floor((turned * steps) / 360)));
    return { turn: turned, ...shift };
  }, OPENING);
  if (!touched) sight.unroll.play();
}

// Resolves once most of an element is on the screen; in another page it may be far below.
const seen = (node) => new Promise((resolve) => new IntersectionObserver(([entry], observer) => {
  if (!entry.isIntersecting) return;
  observer.disconnect();
  resolve();
}, { threshold: 0.6 }).observe(node));

function stop() {
  if (spinning && ring.predictions) showRing(ring.predictions);
  spinning = null;
}

// Files and drawings.

async function open(file) {
  stop();
  document.body.classList.add("reading");
  say(`Reading “${file.name}” …`, "reading");
  try {
    const bitmap = await readFile(file);
    setDrawing(false);
    setSource((model) => fileSource(bitmap, model), UPRIGHT);
    say(state.source.blank ? `“${file.name}” has a single colour: there is nothing to classify.` : null);
  } catch (error) {
    if (!(error instanceof Unreadable)) throw error;
    say(error.message);
  } finally {
    document.body.classList.remove("reading");
  }
}

function setDrawing(on) {
  stop();
  if (on === stage.drawing) return;
  stage.drawing = on;
  byId("stage").classList.toggle("drawing", on);
  byId("draw").setAttribute("aria-pressed", String(on));
  byId("pen").hidden = !on;
  byId("legend").hidden = on;
  if (on) stage.undo(true);
  else stage.show(state);
}

function drawn() {
  setSource((model) => drawingSource(stage.pad, model), UPRIGHT);
}

function setSource(make, pose = {}) {
  stop();
  if (make !== makeSource) for (const button of byId("samples").children) button.setAttribute("aria-checked", "false");
  makeSource = make;
  state.source = make(state.model);
  state.truth = inClasses(state.source.label);
  state.pin = [0, -0.4 * state.source.picture.height];
  byId("truth").value = state.truth ?? "";
  document.body.classList.toggle("blank", state.source.blank);
  ringKey = null;
  const { turn, size, x, y } = { ...UPRIGHT, ...pose, ...state.source.pose };
  move({ turn, size, x, y });
}

function setTruth(label) {
  if (label === state.truth) return;
  state.truth = label;
  byId("truth").value = label ?? "";
  ringKey = null;
  move({});
}

// Index of the class named like a digit's label, or null.
function inClasses(label) {
  const index = label === null ? -1 : state.model.classes.indexOf(String(label));
  return index < 0 ? null : index;
}

function move(change) {
  if (!change.animated) {
    stop();
    say(null);
    note(null);
  }
  const { turn = state.turn, size = state.size, x = state.x, y = state.y, clutter = state.clutter } = change;
  const [reachX, reachY] = [0.6 * state.model.width, 0.6 * state.model.height];
  state.turn = 180 - (((180 - turn) % 360) + 360) % 360;
  state.size = clamp(size, ...SIZES);
  state.x = clamp(x, -reachX, reachX);
  state.y = clamp(y, -reachY, reachY);
  state.clutter = clutter;
  byId("turn").value = Math.round(state.turn);
  byId("turn-value").textContent = `${Math.round(state.turn)}°`;
  byId("size").value = state.size;
  byId("size-value").textContent = state.size.toFixed(2);
  byId("tested").textContent = "";
  byId("meaning").textContent = state.truth === null ? "predicts the same as upright" : "is right";
  stage.show(state);
  if (keyOfRing() !== ringKey) {
    ringKey = null;
    ring.clear(networksOf(state.model).length, state.truth);
    answers.score([], 0, null);
  }
  clearTimeout(resting);
  resting = setTimeout(rest, REST);
  return ask();
}

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

function query() {
  const { turn, size, x, y, source, model, pin, clutter } = state;
  return { model: model.key, image: source.picture, turn, scale: size * source.fit, shift: [x, y], pin, clutter: clutter?.picture ?? null };
}

// Calls the networks for the current state and shows the result, unless a newer call replaced this one.
async function ask() {
  if (state.source.blank) return;
  const sentAt = performance.now();
  const { source, model, truth } = state;
  const reply = await refused(asker.ask(query()));
  if (!reply || source !== state.source || model !== state.model || truth !== state.truth) return;
  if (byId("message").dataset.about === "server") say(null);
  document.body.classList.remove("waiting");
  state.all = [reply.polar_probabilities, reply.plain_probabilities].filter(Boolean);
  sight.show(reply);
  answers.show(state.all, truth);
  explain();
  measure(sentAt);
}

// Returns the result of a promise, or shows why the server refused and returns null.
async function refused(promise) {
  try {
    return await promise;
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    stop();
    say(error.message, "server");
    return null;
  }
}

// The ring depends on everything but the angle.
function keyOfRing() {
  const { source, model, size, x, y, clutter, truth } = state;
  return JSON.stringify([source.picture.pixels, model.key, size.toFixed(3), x.toFixed(2), y.toFixed(2), clutter?.picture.pixels, truth]);
}

async function refreshRing() {
  const key = keyOfRing();
  if (state.source.blank) return null;
  if (key === ringKey) return ring.predictions;
  const reply = await refused(ringAsker.ask(query()));
  if (!reply || key !== keyOfRing()) return null;
  ringKey = key;
  const predictions = [reply.polar, reply.plain].filter(Boolean);
  ring.clear(predictions.length, state.truth);
  showRing(predictions);
  return predictions;
}

function showRing(predictions, count) {
  ring.show(predictions, count);
  byId("outlined").hidden = !ring.outlined;
  answers.score(ring.scores, ring.shown, state.truth);
}

// Once movement ends: the ring, and the results in words.
async function rest() {
  if (spinning || state.source.blank) return;
  const predictions = await refreshRing();
  if (!predictions || !state.all) return;
  const score = ring.describe(answers.networks.map(({ short }) => short));
  byId("live").textContent = `${answers.describe(state.all, state.truth)}. ${score}.`;
}

// Explains a prediction of 6 or 9 that differs from the true class, or whose true class is unknown.
function explain() {
  const names = state.all.map((each) => state.model.classes[best(each)]);
  const ambiguous = ["6", "9"].includes(names[0]);
  const truth = state.truth === null ? null : state.model.classes[state.truth];
  if (!ambiguous || names[0] === truth || !byId("note").hidden || spinning) return;
  note("A 6 rotated by 180° looks like a 9. The polar network is invariant to rotation, so it has to guess between them.");
}

function note(text) {
  byId("note").hidden = !text;
  byId("note").textContent = text ?? "";
}

// Tests both networks on all test images in the current pose.
async function test() {
  const { turn, size, x, y, model, source } = state;
  const fit = model.samples === "photographs" ? model.width / 32 : model.digit_scale;
  byId("test").disabled = true;
  byId("tested").textContent = "Testing …";
  const reply = await refused(engine.test({ model: model.key, turn, scale: size * fit, shift: [x, y] }));
  byId("test").disabled = false;
  byId("tested").textContent = "";
  if (!reply || model !== state.model || source !== state.source) return;
  const images = `${reply.count.toLocaleString("en")} ${setup.samples[model.samples].source} in this pose`;
  byId("tested").append(...comparison(images, [reply.polar, reply.plain].map((correct) => (100 * correct) / reply.count)));
}

// The share of images, in percent, on which each network is right, in words.
function comparison(images, shares) {
  const parts = networksOf(state.model).map(({ kind, short }, index) => {
    const part = document.createElement("b");
    part.className = kind;
    part.textContent = `${short} ${shares[index].toFixed(1)}%`;
    return part;
  });
  return [`Right on ${images}: `, ...parts.flatMap((part, index) => (index ? [", ", part] : [part]))];
}

function measure(sentAt) {
  requestAnimationFrame(() => setTimeout(() => {
    const { dataset } = byId("latency");
    dataset.count = Number(dataset.count ?? 0) + 1;
    if (dataset.count === "1") return; // it loads the network
    latencies.push(performance.now() - sentAt);
    if (latencies.length > KEPT) latencies.shift();
    const median = [...latencies].sort((a, b) => a - b)[latencies.length >> 1];
    byId("latency").textContent = `Latency: ${median.toFixed(0)} ms (median)`;
  }));
}

function link(name, address) {
  const node = document.createElement("a");
  node.href = address;
  node.textContent = name;
  node.target = "_top";
  return node;
}

// Shows a message until the next move; a message about the server until the next reply.
function say(message, about = "image") {
  byId("message").hidden = !message;
  byId("message").textContent = message ?? "";
  byId("message").dataset.about = about;
  if (message && frameElement) byId("message").scrollIntoView({ block: "nearest" });
}

start().catch((error) => {
  say(`The page could not start: ${error.message}`);
  throw error;
});
