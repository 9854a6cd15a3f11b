// Runs the networks by requests to the server of `ptn demo`: look, ring and test.

export class Refusal extends Error {}

export class Server {
  look = (body) => post("look", body);
  ring = (body) => post("ring", body);
  test = (body) => post("test", body);
}

// Makes one call at a time: while a call is in flight, only the newest of the waiting calls is kept.
export class Latest {
  #busy = false;
  #waiting = null;

  constructor(call) {
    this.call = call;
  }

  // Returns the reply, or null if a newer call replaced this one before it was made.
  ask(body) {
    return new Promise((resolve, reject) => {
      this.#waiting?.resolve(null);
      this.#waiting = { body, resolve, reject };
      if (!this.#busy) this.#send();
    });
  }

  async #send() {
    this.#busy = true;
    while (this.#waiting) {
      const { body, resolve, reject } = this.#waiting;
      this.#waiting = null;
      try {
        resolve(await this.call(body));
      } catch (error) {
        reject(error);
      }
    }
    this.#busy = false;
  }
}

async function post(address, body) {
  const request = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  let response;
  try {
    response = await fetch(address, request);
  } catch {
    throw new Refusal("The server does not respond. Is ptn demo still running?");
  }
  const reply = await response.json().catch(() => null);
  if (response.ok && reply) return reply;
  throw new Refusal(`The server refused this image: ${reply?.reason ?? `status ${response.status}`}.`);
}
