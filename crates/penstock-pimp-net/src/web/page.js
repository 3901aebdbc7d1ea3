// @ts-check
/**
 * The page that the buffer serves: `/#job=JOBID&key=READKEY`. What stands behind the `#` stays in the browser.
 */
import { Job, Kept, PimpError } from "./pimp.js";
import { view } from "./views.js";

/** @template {Element} T @param {string} id @param {new () => T} type @returns {T} */
function element(id, type) {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new Error(`the page has no ${id}`);
  return found;
}

const main = element("payload", HTMLElement);
const state = element("state", HTMLElement);
const facts = element("facts", HTMLElement);
const progress = element("progress", HTMLProgressElement);
const cancel = element("cancel", HTMLButtonElement);
const again = element("again", HTMLButtonElement);
const save = element("save", HTMLAnchorElement);
const form = element("ask", HTMLFormElement);
/** What this buffer takes, which it says in its page. @type {Partial<import("./pimp.js").Limits>} */
const limits = JSON.parse(document.querySelector("meta[name=limits]")?.getAttribute("content") ?? "{}");

/** @type {AbortController | undefined} */
let reading;

/** @param {string} name @param {string} [text] */
function say(name, text = name) {
  state.textContent = text;
  state.dataset.state = name;
}

/** @param {number} bytes */
const size = (bytes) => (bytes < 10_000 ? `${bytes} bytes` : `${(bytes / (1 << 20)).toFixed(2)} MiB`);

/** A file name of a job's own, with an ending that is known. @param {string} id @param {string} contentType */
function fileName(id, contentType) {
  const subtype = /^[a-z]+\/([a-z0-9]{2,8})\b/.exec(contentType.toLowerCase())?.[1] ?? "bin";
  return `${id}.${subtype === "plain" ? "txt" : subtype}`;
}

/** Shows a job until it ends or another one is asked for. @param {Job} job @param {AbortSignal} signal */
async function show(job, signal) {
  const { contentType, contentLength, compression } = await job.open();
  if (signal.aborted) return;
  const shown = view(main, contentType);
  const decoder = new TextDecoder();
  const parts = [];
  let bytes = 0;
  say("active", isOnline());
  for await (const part of job) {
    if (signal.aborted) return;
    parts.push(part);
    bytes += part.length;
    shown.text?.(decoder.decode(part, { stream: true }));
    facts.textContent = `${contentType}, ${size(bytes)}, chunk ${job.nextIndex - 1}`;
    if (contentLength && compression === "none") [progress.max, progress.value] = [contentLength, bytes];
  }
  shown.text?.(decoder.decode());
  // With this type no browser opens it as a page.
  const whole = new Blob(parts, { type: "application/octet-stream" });
  await shown.end?.(whole);
  [progress.max, progress.value] = [1, 1];
  facts.textContent = `${contentType}, ${size(bytes)}, ${job.nextIndex} chunks`;
  [save.href, save.download, save.hidden] = [URL.createObjectURL(whole), fileName(job.id, contentType), false];
  say("completed");
}

const isOnline = () => (navigator.onLine ? "active" : "offline");

async function start() {
  reading?.abort();
  const controller = (reading = new AbortController());
  const asked = new URLSearchParams(location.hash.slice(1));
  const [id, key] = [asked.get("job") ?? "", asked.get("key") ?? ""];
  if (save.href) URL.revokeObjectURL(save.href);
  main.replaceChildren();
  progress.removeAttribute("value");
  facts.textContent = "";
  [form.hidden, progress.hidden, cancel.hidden, again.hidden, save.hidden] = [Boolean(id), !id, true, true, true];
  element("job", HTMLElement).textContent = id;
  if (!id) return say("none", "no job");
  say("created", "waiting");
  try {
    const keep = await Kept.open().catch(() => undefined);
    const { signal } = controller;
    if (signal.aborted) return;
    const job = new Job(`/pimp/${id}`, { key: key || undefined, keep, limits, signal });
    cancel.hidden = !key;
    cancel.onclick = () => stop(job, controller);
    await show(job, signal);
    cancel.hidden = true;
  } catch (error) {
    if (controller.signal.aborted) return;
    const code = error instanceof PimpError ? error.code : "ERROR";
    say("failed", `${code}: ${error instanceof Error ? error.message : error}`);
    [cancel.hidden, again.hidden] = [true, code !== "STALLED"];
    progress.value = 0;
  }
}

/** @param {Job} job @param {AbortController} controller */
async function stop(job, controller) {
  cancel.disabled = true;
  try {
    // What has ended meanwhile is shown as it ended.
    if (await job.cancel()) {
      controller.abort();
      say("cancelled");
      progress.value = 0;
      cancel.hidden = true;
    }
  } catch (error) {
    facts.textContent = `not cancelled: ${error instanceof Error ? error.message : error}`;
  } finally {
    cancel.disabled = false;
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const fields = new FormData(form);
  const asked = new URLSearchParams({ job: String(fields.get("job")).trim() });
  if (fields.get("key")) asked.set("key", String(fields.get("key")));
  location.hash = asked.toString();
});
again.addEventListener("click", start);
addEventListener("hashchange", start);
for (const event of ["online", "offline"]) {
  addEventListener(event, () => {
    if (["active", "created"].includes(state.dataset.state ?? "")) state.textContent = isOnline();
  });
}
start();
