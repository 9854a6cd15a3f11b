// The state of the page, its controls, and requests to the server.

import { Answers, best, networksOf } from "./answers.js";
import { Asker, Refusal } from "./asker.js";
import { Strip, Sweep } from "./charts.js";
import { ink, paint } from "./pictures.js";
import { Sight } from "./sight.js";
import { digitSource, drawingSource, fileSource, readFile, Unreadable } from "./sources.js";
import { SIZES, Stage } from "./stage.js";

const byId = (id) => document.getElementById(id);
const STEP = 5; // degrees between the angles of a spin
const KEPT = 101; // number of latencies in the median

const asker = new Asker();
const sight = new Sight();
const answers = new Answers(byId("verdicts"), byId("bars"));
const strip = new Strip(byId("strip"));
const sweep = new Sweep(byId("sweep"));
const stage = new Stage(byId("stage"), move, () => setSource((model) => drawingSource(stage.pad, model)));

let setup;
let makeSource; // model -> source
const state = { turn: 0, size: 1, x: 0, y: 0, model: null, source: null, truth: null, pin: [0, 0] };
let spinning = null;
let last = null; // the pose of the previous reply
const latencies = [];

async function start() {
  setup = await (await fetch("setup.json")).json();
  byId("model").replaceChildren(...setup.models.map(({ key, title }) => new Option(title, key)));
  showDigits();
  wire();
  setModel(setup.models[0], () => (setup.digits.length ? pick(3 % setup.digits.length) : setDrawing(true)));
}

function wire() {
  byId("model").addEventListener("change", (event) => {
    setModel(setup.models.find(({ key }) => key === event.target.value), () => setSource(makeSource));
  });
  for (const name of ["turn", "size"]) {
    byId(name).addEventListener("input", (event) => {
      const change = { [name]: Number(event.target.value) };
      setDrawing(false);
      move(change);
    });
  }
  byId("draw").addEventListener("click", () => setDrawing(!stage.drawing));
  byId("reset").addEventListener("click", () => move(UPRIGHT));
  byId("spin").addEventListener("click", spin);
  byId("truth").addEventListener("change", (event) => {
    state.truth = event.target.value === "" ? null : Number(event.target.value);
    clearCharts();
    ask();
  });
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
}

const UPRIGHT = { turn: 0, size: 1, x: 0, y: 0 };

function setModel(model, then) {
  stop();
  state.model = model;
  byId("about").textContent = model.about;
  const thing = model.classes.every((name) => /^\d$/.test(name)) ? "digit" : "image";
  for (const word of document.querySelectorAll(".thing")) word.textContent = thing;
  answers.prepare(model);
  const unknown = new Option("unknown", "");
  byId("truth").replaceChildren(unknown, ...model.classes.map((name, label) => new Option(name, label)));
  then();
}

function showDigits() {
  if (!setup.digits.length) {
    const hint = document.createElement("p");
    hint.textContent = "For MNIST digits: pip install 'ptn[demo]'";
    byId("digits").replaceChildren(hint);
    return;
  }
  const buttons = setup.digits.map(({ image, label }, index) => {
    const button = document.createElement("button");
    const canvas = document.createElement("canvas");
    button.type = "button";
    button.setAttribute("aria-label", `MNIST digit ${label}`);
    button.addEventListener("click", () => pick(index));
    paint(canvas, image, ink);
    button.append(canvas);
    return button;
  });
  const note = document.createElement("p");
  note.textContent = "MNIST digits; some may be in the training data of the networks.";
  byId("digits").replaceChildren(...buttons, note);
}

function pick(index) {
  setDrawing(false);
  setSource((model) => digitSource(setup.digits[index], model), UPRIGHT);
  byId("digits").children[index].setAttribute("aria-pressed", "true");
}

async function open(file) {
  try {
    const bitmap = await readFile(file);
    setDrawing(false);
    setSource((model) => fileSource(bitmap, model), UPRIGHT);
    if (state.source.blank) say(`“${file.name}” has a single colour: there is nothing to classify.`);
  } catch (error) {
    if (!(error instanceof Unreadable)) throw error;
    say(error.message);
  }
}

function setDrawing(on) {
  stop();
  if (on === stage.drawing) return;
  stage.drawing = on;
  byId("stage").classList.toggle("drawing", on);
  byId("draw").setAttribute("aria-pressed", String(on));
  byId("draw").textContent = on ? "Done" : "Draw";
  if (on) {
    stage.clearPad();
    setSource((model) => drawingSource(stage.pad, model), UPRIGHT);
  }
  stage.show(state);
}

function setSource(make, pose = {}) {
  stop();
  if (make !== makeSource) byId("digits").querySelector("[aria-pressed]")?.removeAttribute("aria-pressed");
  makeSource = make;
  state.source = make(state.model);
  state.truth = inClasses(state.source.label);
  state.pin = [0, -0.4 * state.source.picture.height];
  byId("truth").value = state.truth ?? "";
  document.body.classList.toggle("blank", state.source.blank);
  clearCharts();
  move(pose);
}

// Index of the class named like a digit's label, or null.
function inClasses(label) {
  const index = label === null ? -1 : state.model.classes.indexOf(String(label));
  return index < 0 ? null : index;
}

function clearCharts() {
  const names = networksOf(state.model).map(({ short }) => short.replace("Plain ", ""));
  const what = state.truth === null ? "Confidence" : `Confidence in “${state.model.classes[state.truth]}”`;
  byId("strip-title").textContent = `${what} over the last 360°`;
  byId("sweep-title").textContent = `${what} at every angle`;
  strip.clear(names);
  sweep.clear(names, state.truth === null ? "same" : "right");
  last = null;
}

function move(change) {
  if (!change.spin) {
    stop();
    say(null);
  }
  const { turn = state.turn, size = state.size, x = state.x, y = state.y } = change;
  const reachX = 0.6 * state.model.width;
  const reachY = 0.6 * state.model.height;
  state.turn = ((turn + 180) % 360 + 360) % 360 - 180;
  state.size = clamp(size, ...SIZES);
  state.x = clamp(x, -reachX, reachX);
  state.y = clamp(y, -reachY, reachY);
  byId("turn").value = Math.round(state.turn);
  byId("turn-value").textContent = `${Math.round(state.turn)}°`;
  byId("size").value = state.size;
  byId("size-value").textContent = state.size.toFixed(2);
  stage.show(state);
  return ask();
}

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

// Requests results for the current state and shows them; returns null if a newer request replaced this one.
async function ask() {
  if (state.source.blank) return null;
  const sentAt = performance.now();
  const { turn, size, x, y, source, model, truth, pin } = state;
  const pose = { turn, size, x, y };
  const body = { model: model.key, image: source.picture, turn, scale: size * source.fit, shift: [x, y], pin };
  let reply;
  try {
    reply = await asker.ask(body);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    stop();
    say(error.message, "server");
    return null;
  }
  if (!reply || source !== state.source || model !== state.model || truth !== state.truth) return null;
  if (byId("message").dataset.about === "server") say(null);
  const all = [reply.polar_probabilities, reply.plain_probabilities].filter(Boolean);
  sight.show(reply);
  answers.show(all, truth);
  strip.add(way(last, pose, model), confidences(all, truth));
  last = pose;
  measure(sentAt);
  return all;
}

const confidences = (all, truth) => all.map((each) => each[truth ?? best(each)]);

// Distance between poses in degrees: a shift by the image width and a scaling by 3 count as 360°.
function way(from, to, model) {
  if (!from) return 0;
  const rotated = Math.abs(((to.turn - from.turn + 540) % 360) - 180);
  const moved = (360 * Math.hypot(to.x - from.x, to.y - from.y)) / model.width;
  const grown = (360 * Math.abs(Math.log(to.size / from.size))) / Math.log(3);
  return rotated + moved + grown;
}

function measure(sentAt) {
  requestAnimationFrame(() => setTimeout(() => {
    latencies.push(performance.now() - sentAt);
    if (latencies.length > KEPT) latencies.shift();
    const median = [...latencies].sort((a, b) => a - b)[latencies.length >> 1];
    byId("latency").textContent = `Latency: ${median.toFixed(0)} ms (median)`;
    byId("latency").dataset.median = median;
    byId("latency").dataset.count = Number(byId("latency").dataset.count ?? 0) + 1;
  }));
}

// Rotates by 360° in steps and records the predictions.
async function spin() {
  if (spinning) {
    stop();
    return;
  }
  setDrawing(false);
  if (state.source.blank) return;
  const mine = {};
  spinning = mine;
  byId("spin").textContent = "Stop";
  sweep.clear(sweep.names, sweep.goal);
  const from = state.turn;
  let expected = null; // the true class; if unknown, the first prediction of each network
  for (let degrees = 0; degrees <= 360 && spinning === mine; degrees += STEP) {
    const all = await move({ turn: from + degrees, spin: true });
    if (!all) break;
    expected ??= all.map((probabilities) => state.truth ?? best(probabilities));
    const right = all.map((probabilities, index) => best(probabilities) === expected[index]);
    sweep.add({ degrees, confidences: confidences(all, state.truth), right });
  }
  if (spinning !== mine) return;
  stop();
  byId("sweep").scrollIntoView({ block: "nearest", behavior: "smooth" }); // below the fold on small screens
}

function stop() {
  spinning = null;
  byId("spin").textContent = "Spin 360°";
}

// Shows a message until the next move; a message about the server until the next reply.
function say(message, about = "image") {
  byId("message").hidden = !message;
  byId("message").textContent = message ?? "";
  byId("message").dataset.about = about;
}

start().catch((error) => {
  say(`The page could not start: ${error.message}`);
  throw error;
});
