// Questions to the server, one at a time: while one is on its way only the newest of the others is kept.

export class Refusal extends Error {}

export class Asker {
  #busy = false;
  #waiting = null;

  // The answer to a question, or null if a newer question took its place before it was sent.
  ask(question) {
    return new Promise((resolve, reject) => {
      this.#waiting?.resolve(null);
      this.#waiting = { question, resolve, reject };
      if (!this.#busy) this.#send();
    });
  }

  async #send() {
    this.#busy = true;
    while (this.#waiting) {
      const { question, resolve, reject } = this.#waiting;
      this.#waiting = null;
      try {
        resolve(await post("look", question));
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
    throw new Refusal("The server does not answer. Is ptn demo still running?");
  }
  const answer = await response.json().catch(() => null);
  if (response.ok && answer) return answer;
  throw new Refusal(`The server refused this image: ${answer?.reason ?? `status ${response.status}`}.`);
}
