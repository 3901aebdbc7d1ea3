// @ts-check
/**
 * PIMP 0.5.0 for browsers and Node: reads a job as it arrives. No dependencies, no build step.
 *
 *     import { Job, Kept } from "./pimp.js";
 *     const job = new Job("https://buffer.example/pimp/" + id, { key, keep: await Kept.open() });
 *     console.log((await job.open()).contentType);
 *     for await (const bytes of job) console.log(bytes.length);
 *
 * What comes is checked as it comes: envelopes, Base64, lengths, at the end the SHA-256. So bytes are to be believed only
 * when the loop has ended without an error. Every error is a {@link PimpError}.
 */

/**
 * Chunk 0 of a job (section 4).
 * @typedef {object} Metadata
 * @property {string} contentType the payload's MIME type
 * @property {"identity" | "base64"} contentEncoding how values hold bytes
 * @property {"none" | "gzip"} compression what was done to the payload before it was cut
 * @property {number} [contentLength] bytes of the payload as it is reassembled, before it is decompressed
 * @property {object} [meta] the application's own
 */

/**
 * A chunk as it is stored (section 5).
 * @typedef {object} Envelope
 * @property {string} jobId
 * @property {number} index
 * @property {string} value
 * @property {boolean} done
 * @property {string | null} error
 * @property {number} createdAt milliseconds since the Unix epoch
 * @property {string | null} [sha256] of the payload, on the final chunk only
 */

/**
 * Where chunks are kept, so that a reload goes on where it was. {@link Kept} is one.
 * @typedef {object} Keep
 * @property {(url: string) => Promise<Envelope[]>} load
 * @property {(url: string, chunks: Envelope[]) => Promise<void>} save
 * @property {(url: string) => Promise<void>} forget
 */

/**
 * @typedef {object} Options
 * @property {string} [key] the readKey, or the writeKey
 * @property {number} [wait] how long the buffer may hold an empty poll open, in ms: 25000; 0: not at all
 * @property {number} [pollInterval] the first pause between polls that bring nothing, in ms: 500
 * @property {number} [maxPollInterval] what that pause grows to, in ms: 5000
 * @property {number} [stallTimeout] how long nothing new may come, in ms: 30000. Time without a network does not count
 * @property {Partial<Limits>} [limits] how large a job may be at this buffer: 50 Mi characters, 4096 chunks, 256 Ki characters a value
 * @property {number} [inflated] the most bytes of a payload that was compressed: 1 GiB
 * @property {Keep} [keep] where chunks are kept over a reload; nowhere
 * @property {AbortSignal} [signal] ends the reading
 */

/**
 * How large a job may be, so that an evil buffer cannot fill the memory.
 * @typedef {object} Limits
 * @property {number} job characters of all values
 * @property {number} chunks
 * @property {number} value characters of one value
 */

const MIB = 1 << 20;
/** Those of a buffer that was told nothing else (decision 3). @type {Limits} */
const LIMITS = { job: 50 * MIB, chunks: 4096, value: 256 << 10 };
/** Bytes of an answer: more only where one value is longer, of which JSON writes a character with up to six bytes. */
const ANSWER = 64 * MIB;
const ESCAPED = 6;
/** Chunks asked for at once: at first, and at most. */
const AT_ONCE = [8, 64];
/** An answer that takes longer than so many ms has too many of them, for a line as slow as this. */
const SLOW = 2_000;
/** How long a poll may take beyond what it waits, and the next piece of an answer, in ms. */
const PATIENCE = 10_000;
/** How long chunks are kept at most, in ms: a job lives for five minutes, and is known for as long again. */
const KEPT = 600_000;
/** @type {Record<number, string>} */
const CODES = {
  400: "MALFORMED", 401: "UNAUTHORIZED", 404: "NOT_FOUND", 409: "CONFLICT",
  410: "EXPIRED", 412: "PRECONDITION_FAILED", 413: "TOO_LARGE", 415: "UNSUPPORTED_MEDIA_TYPE",
};

/** What went wrong: `code` is for programs, the names of docs/protocols/pimp.md. */
export class PimpError extends Error {
  /**
   * @param {string} code
   * @param {string} message
   * @param {number} [status] that of the answer, if one was the reason
   */
  constructor(code, message, status) {
    super(message);
    this.name = "PimpError";
    this.code = code;
    this.status = status;
  }
}

/** @param {string} message */
const malformed = (message) => new PimpError("MALFORMED", message);
/** @param {string} message */
const corrupt = (message) => new PimpError("CORRUPT", message);
/** @param {unknown} value @returns {value is Record<string, unknown>} */
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
/** @param {unknown} value @returns {value is number} */
const isCount = (value) => typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
/** Half of a pair, which no UTF-8 has. @param {string} text */
const isBroken = (text) => /\p{Surrogate}/u.test(text);
const isOffline = () => globalThis.navigator?.onLine === false;

/** @param {string} value @returns {Metadata} */
function readMetadata(value) {
  let found;
  try {
    found = JSON.parse(value);
  } catch (error) {
    throw malformed(`chunk 0 is no metadata: ${error}`);
  }
  if (!isObject(found)) throw malformed("chunk 0 is no object");
  const { contentType, contentEncoding, compression = "none", contentLength, meta } = found;
  if (typeof contentType !== "string" || !/^[!-.0-~]+\/[!-.0-~][ -~]*$/.test(contentType)) throw malformed("contentType is no MIME type");
  if (contentEncoding !== "identity" && contentEncoding !== "base64") throw malformed("contentEncoding is none");
  if (compression !== "none" && compression !== "gzip") throw malformed("compression is none");
  if (contentLength !== undefined && contentLength !== null && !isCount(contentLength)) throw malformed("contentLength is none");
  if (meta !== undefined && meta !== null && !isObject(meta)) throw malformed("meta is no object");
  return { contentType, contentEncoding, compression, contentLength: contentLength ?? undefined, meta: meta ?? undefined };
}

/**
 * Checks an envelope of an answer: a buffer may be evil.
 * @param {unknown} found @param {string} job @param {Limits} limits @returns {Envelope}
 */
function readEnvelope(found, job, limits) {
  if (!isObject(found)) throw malformed("an envelope is no object");
  const { jobId, index, value, done, error, createdAt, sha256 } = found;
  if (jobId !== job) throw malformed("jobId is another job's");
  if (!isCount(index)) throw malformed("index is none");
  if (index >= limits.chunks) throw new PimpError("TOO_LARGE", `index is ${index}, the limit is ${limits.chunks - 1}`);
  if (typeof value !== "string" || isBroken(value)) throw malformed(`value of chunk ${index} is no text`);
  if (value.length > limits.value) throw new PimpError("TOO_LARGE", `value of chunk ${index} is longer than ${limits.value}`);
  if (typeof done !== "boolean") throw malformed(`done of chunk ${index} is no boolean`);
  if (error !== null && typeof error !== "string") throw malformed(`error of chunk ${index} is no text`);
  if (error !== null && !done) throw malformed(`chunk ${index} has an error and is not done`);
  if (done && index === 0 && error === null) throw malformed("chunk 0 is done without an error");
  if (!isCount(createdAt)) throw malformed(`createdAt of chunk ${index} is no time`);
  if (sha256 !== undefined && sha256 !== null && !(done && typeof sha256 === "string" && /^[0-9a-f]{64}$/.test(sha256))) {
    throw malformed(`sha256 of chunk ${index} is none`);
  }
  return { jobId, index, value, done, error, createdAt, sha256: sha256 ?? null };
}

/**
 * Reads a body, as long as it is not too long.
 * @param {Response} response @param {number} most bytes @param {() => void} [alive] called with each piece @returns {Promise<string>}
 */
async function readBody(response, most, alive) {
  const reader = response.body?.getReader();
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let [text, bytes] = ["", 0];
  while (reader) {
    const { value, done } = await reader.read();
    if (done) break;
    bytes += value.length;
    alive?.();
    if (bytes > most) {
      await reader.cancel();
      throw new PimpError("TOO_LARGE", `the answer is longer than ${most} bytes`);
    }
    try {
      text += decoder.decode(value, { stream: true });
    } catch {
      throw malformed("the answer is no UTF-8");
    }
  }
  return text + decoder.decode();
}

/** Puts bytes together from values, and checks what is said about them (sections 3 and 4, decisions 5, 6 and 11). */
class Reassembly {
  /** @param {Metadata} metadata */
  constructor(metadata) {
    this.metadata = metadata;
    this.carry = "";
    this.bytes = 0;
    /** @type {Uint8Array<ArrayBuffer>[]} */
    this.parts = [];
  }

  /** @param {string} value @returns {Uint8Array<ArrayBuffer>} */
  push(value) {
    const bytes = this.metadata.contentEncoding === "identity" ? new TextEncoder().encode(value) : this.#base64(value);
    this.bytes += bytes.length;
    const { contentLength } = this.metadata;
    if (contentLength !== undefined && this.bytes > contentLength) {
      throw corrupt(`contentLength is ${contentLength}, and ${this.bytes} bytes came`);
    }
    this.parts.push(bytes);
    return bytes;
  }

  /** Values that are padded each, and one text that is cut anywhere, are both read. @param {string} value */
  #base64(value) {
    const text = this.carry + value;
    const whole = text.length - (text.length % 4);
    this.carry = text.slice(whole);
    const quads = text.slice(0, whole);
    if (!/^(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)*$/.test(quads)) throw corrupt("a value is no Base64");
    // Decoding restarts after a padding in the middle.
    const pieces = quads.includes("=") ? quads.match(/[^=]+=*/g) ?? [] : [quads];
    const binary = pieces.map((piece) => {
      const decoded = atob(piece);
      if (piece.endsWith("=") && btoa(decoded).slice(-4) !== piece.slice(-4)) throw corrupt("a value is no Base64: bits behind its end");
      return decoded;
    }).join("");
    const bytes = new Uint8Array(binary.length);
    for (let at = 0; at < binary.length; at += 1) bytes[at] = binary.charCodeAt(at);
    return bytes;
  }

  /** @param {string | null | undefined} sha256 */
  async finish(sha256) {
    if (this.carry) throw corrupt("the Base64 breaks off");
    const { contentLength } = this.metadata;
    if (contentLength !== undefined && this.bytes !== contentLength) {
      throw corrupt(`contentLength is ${contentLength}, and ${this.bytes} bytes came`);
    }
    if (!sha256) return;
    const subtle = globalThis.crypto?.subtle;
    if (!subtle) throw corrupt("the SHA-256 cannot be checked: this page did not come over HTTPS");
    const whole = await new Blob(this.parts).arrayBuffer();
    const hash = Array.from(new Uint8Array(await subtle.digest("SHA-256", whole)), (byte) => byte.toString(16).padStart(2, "0")).join("");
    if (hash !== sha256) throw corrupt(`its SHA-256 is ${hash}, and the sender said ${sha256}`);
  }
}

/** A job at a buffer. One object reads it once. */
export class Job {
  /** @type {Required<Pick<Options, "wait" | "pollInterval" | "maxPollInterval" | "stallTimeout" | "inflated">> & Options} */
  #options;
  /** @type {AsyncGenerator<Envelope, void, void>} */
  #chunks;
  /** @type {Promise<Metadata> | undefined} */
  #opened;
  /** @type {Keep | undefined} */
  #keep;
  /** @type {Limits} */
  #limits;

  /**
   * @param {string | URL} url `https://BUFFER/pimp/JOBID`
   * @param {Options} [options]
   */
  constructor(url, options = {}) {
    this.#options = { wait: 25_000, pollInterval: 500, maxPollInterval: 5_000, stallTimeout: 30_000, inflated: 1 << 30, ...options };
    this.url = new URL(url, globalThis.location?.href).href.replace(/[?#].*$/, "").replace(/\/$/, "");
    /** The job's ID. */
    this.id = this.url.slice(this.url.lastIndexOf("/") + 1);
    if (!/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(this.id)) throw malformed("the URL ends in no UUIDv4");
    /** The next index that the payload needs. */
    this.nextIndex = 0;
    this.#keep = options.keep;
    this.#limits = { ...LIMITS, ...options.limits };
    this.#chunks = this.#read();
  }

  /**
   * Makes the job at the buffer, as the consumer does before it triggers the sender (section 6, decision 1).
   * @param {string} writeKey what the sender will write with; a random one is given by {@link randomKey}
   * @param {{ttlMs?: number, readKey?: string}} [settings]
   */
  async create(writeKey, settings = {}) {
    const headers = { authorization: `Bearer ${writeKey}`, "content-type": "application/json" };
    await this.#ask("", { method: "PUT", headers, body: JSON.stringify(settings) });
  }

  /**
   * Waits for chunk 0.
   * @returns {Promise<Metadata>}
   */
  open() {
    const first = async () => {
      const { value } = await this.#chunks.next();
      if (!value) throw malformed("the job was read already");
      return readMetadata(value.value);
    };
    this.#opened ??= first();
    return this.#opened;
  }

  /** The payload's bytes, decompressed, as they come. */
  async *[Symbol.asyncIterator]() {
    const metadata = await this.open();
    const reassembled = this.#reassembled(metadata);
    if (metadata.compression === "none") {
      yield* reassembled;
      return;
    }
    const packed = new ReadableStream({
      async pull(controller) {
        const { value, done } = await reassembled.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      async cancel() {
        await reassembled.return();
      },
    });
    const reader = packed.pipeThrough(new DecompressionStream("gzip")).getReader();
    let bytes = 0;
    try {
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        bytes += value.length;
        if (bytes > this.#options.inflated) throw new PimpError("TOO_LARGE", `more than ${this.#options.inflated} bytes, inflated`);
        yield value;
      }
    } catch (error) {
      if (error instanceof PimpError) throw error;
      this.#options.signal?.throwIfAborted();
      throw corrupt(`no gzip: ${error}`);
    } finally {
      await reader.cancel().catch(() => {});
    }
  }

  /** The payload's text, as it comes. */
  async *text() {
    const decoder = new TextDecoder();
    for await (const bytes of this) yield decoder.decode(bytes, { stream: true });
    yield decoder.decode();
  }

  /**
   * The whole payload.
   * @returns {Promise<Uint8Array<ArrayBuffer>>}
   */
  async bytes() {
    const parts = [];
    for await (const bytes of this) parts.push(bytes);
    return new Uint8Array(await new Blob(parts).arrayBuffer());
  }

  /**
   * Report that no more is wanted: the sender learns it with its next write (decision 11).
   * @returns {Promise<boolean>} whether it was in time
   */
  async cancel() {
    const answer = await this.#ask("/cancel", { method: "POST" });
    return answer.cancelled === true;
  }

  /** What the buffer knows: state, chunks, bytes, nextIndex, createdAt, expiresAt, cancelled, sha256. */
  status() {
    return this.#ask("/status", {});
  }

  /** @param {Metadata} metadata */
  async *#reassembled(metadata) {
    const payload = new Reassembly(metadata);
    for await (const chunk of this.#chunks) {
      const bytes = payload.push(chunk.value);
      if (bytes.length) yield bytes;
      if (chunk.done) await payload.finish(chunk.sha256);
    }
  }

  /**
   * One request. Fails with a {@link PimpError}; what may be tried again has the code UNAVAILABLE.
   * @param {string} path @param {RequestInit} init @param {() => void} [alive] @returns {Promise<Record<string, unknown>>}
   */
  async #ask(path, init, alive) {
    /** @type {Record<string, string>} */
    const key = this.#options.key ? { authorization: `Bearer ${this.#options.key}` } : {};
    const headers = { ...key, .../** @type {Record<string, string>} */ (init.headers ?? {}) };
    const signal = init.signal ?? this.#options.signal;
    /** @type {RequestInit} */
    const careful = { cache: "no-store", credentials: "omit", redirect: "manual", referrerPolicy: "no-referrer" };
    const unavailable = (/** @type {unknown} */ why) => new PimpError("UNAVAILABLE", `the buffer cannot be asked: ${why}`);
    let [status, text, ok] = [0, "", false];
    try {
      const response = await fetch(this.url + path, { ...careful, ...init, headers, signal });
      [status, ok] = [response.status, response.ok];
      text = await readBody(response, Math.max(ANSWER, this.#limits.value * ESCAPED + MIB), alive);
    } catch (error) {
      if (error instanceof PimpError) throw error;
      this.#options.signal?.throwIfAborted();
      throw unavailable(error);
    }
    if (status === 429 || status >= 500) throw unavailable(`it answered with ${status}`);
    let body;
    try {
      body = text ? JSON.parse(text) : {};
    } catch (error) {
      if (ok) throw malformed(`the answer is no JSON: ${error}`);
    }
    if (ok && isObject(body)) return body;
    if (ok) throw malformed("the answer is no object");
    const why = isObject(body) && typeof body.error === "string" ? body.error : text.slice(0, 300);
    const lost = status === 410 && isObject(body) && body.code === "LOST";
    throw new PimpError(lost ? "LOST" : CODES[status] ?? "UNEXPECTED_STATUS", `the buffer refused with ${status}: ${why}`, status);
  }

  /** @param {number} from @param {number} limit @param {number} left how long until it is a stall */
  async #poll(from, limit, left) {
    const { wait, signal } = this.#options;
    const stop = new AbortController();
    const abort = () => stop.abort();
    let late = setTimeout(abort, Math.min(wait + PATIENCE, left));
    const alive = () => {
      clearTimeout(late);
      late = setTimeout(abort, PATIENCE);
    };
    // A connection that went with its network would be waited for in vain.
    const events = ["offline", "online"];
    signal?.addEventListener("abort", abort);
    events.forEach((event) => globalThis.addEventListener?.(event, abort));
    try {
      const held = wait > 0 ? `&wait=${Math.min(wait, Math.floor(left))}` : "";
      const { chunks } = await this.#ask(`?from=${from}&limit=${limit}${held}`, { signal: stop.signal }, alive);
      if (!Array.isArray(chunks)) throw malformed("chunks is no array");
      return chunks.map((chunk) => readEnvelope(chunk, this.id, this.#limits));
    } finally {
      clearTimeout(late);
      signal?.removeEventListener("abort", abort);
      events.forEach((event) => globalThis.removeEventListener?.(event, abort));
    }
  }

  /** Waits; a network that comes back ends it. @param {number} ms */
  async #pause(ms) {
    const { signal } = this.#options;
    signal?.throwIfAborted();
    if (ms <= 0) return;
    await new Promise((resolve) => {
      /** @type {ReturnType<typeof setTimeout> | undefined} */
      let timer;
      const go = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", go);
        globalThis.removeEventListener?.("online", go);
        resolve(undefined);
      };
      if (Number.isFinite(ms)) timer = setTimeout(go, ms);
      signal?.addEventListener("abort", go);
      globalThis.addEventListener?.("online", go);
    });
    signal?.throwIfAborted();
  }

  /** What of the job is kept, and what goes wrong there costs only that. @param {Envelope[]} [chunks] @returns {Promise<Envelope[]>} */
  async #kept(chunks) {
    try {
      if (!chunks) return (await this.#keep?.load(this.url)) ?? [];
      if (chunks.length) await this.#keep?.save(this.url, chunks);
    } catch (error) {
      console.warn("PIMP: chunks are not kept any more:", error);
      this.#keep = undefined;
    }
    return [];
  }

  /** The chunks in their order (section 9): never past a gap, and each once. */
  async *#read() {
    const { pollInterval, maxPollInterval, stallTimeout, wait } = this.#options;
    /** @type {Map<number, Envelope>} */
    const held = new Map((await this.#kept()).map((chunk) => [chunk.index, chunk]));
    let [bytes, pause, failure, lastProgress] = [0, pollInterval, "", performance.now()];
    // No more than an answer holds, however long they are.
    const fit = Math.max(Math.floor((ANSWER - MIB) / (this.#limits.value * ESCAPED)), 1);
    let [limit = 1, most = 1] = AT_ONCE.map((count) => Math.min(count, fit));
    for (;;) {
      if (isOffline()) {
        await this.#pause(Infinity);
        lastProgress = performance.now();
        continue;
      }
      const began = performance.now();
      const left = lastProgress + stallTimeout - began;
      if (left <= 0) {
        const last = this.nextIndex ? `the last is ${this.nextIndex - 1}` : "none came";
        throw new PimpError("STALLED", `no new chunk within ${stallTimeout} ms: ${last}${failure}`);
      }
      let from = this.nextIndex;
      while (held.has(from)) from += 1;
      let news;
      try {
        const chunks = await this.#poll(from, limit, left);
        news = chunks.filter(({ index }, place) => index >= from && !held.has(index) && chunks.findIndex((each) => each.index === index) === place);
      } catch (error) {
        if (error instanceof PimpError && ["EXPIRED", "NOT_FOUND"].includes(error.code)) await this.#keep?.forget(this.url).catch(() => {});
        if (!(error instanceof PimpError) || error.code !== "UNAVAILABLE") throw error;
        failure = `; ${error.message}`;
        // A gateway may cut answers above its limit: from now on no more than half as many are asked for.
        limit = most = Math.max(limit >> 1, 1);
        await this.#pause(Math.min(pause, left));
        pause = Math.min(pause * 2, maxPollInterval);
        continue;
      }
      failure = "";
      if (news.length === limit) limit = performance.now() - began > SLOW ? Math.max(limit >> 1, 1) : Math.min(limit * 2, most);
      await this.#kept(news);
      for (const chunk of news) {
        bytes += chunk.value.length;
        if (bytes > this.#limits.job) throw new PimpError("TOO_LARGE", `the job has more than ${this.#limits.job} characters`);
        held.set(chunk.index, chunk);
      }
      for (let chunk = held.get(this.nextIndex); chunk && chunk.error === null; chunk = held.get(this.nextIndex)) {
        held.delete(this.nextIndex);
        this.nextIndex += 1;
        yield chunk;
        if (chunk.done) return;
      }
      for (const { error } of held.values()) if (error !== null) throw new PimpError("FAILED", `the sender failed: ${error}`);
      if (news.length) {
        [lastProgress, pause] = [performance.now(), pollInterval];
        if (wait <= 0) await this.#pause(pollInterval);
      } else if (wait <= 0 || performance.now() - began < Math.min(wait, pollInterval)) {
        // A buffer that does not hold polls open is not asked in a circle.
        await this.#pause(Math.min(pause, left));
        pause = Math.min(pause * 2, maxPollInterval);
      }
    }
  }
}

/** A key that nobody guesses: 32 random bytes in hex (section 13). */
export function randomKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(32)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Chunks in the browser's own database, for ten minutes at most. */
export class Kept {
  /** @type {IDBDatabase} */
  #database;

  /** @param {IDBDatabase} database */
  constructor(database) {
    this.#database = database;
  }

  /** Opens the database, and forgets what is old. Fails where the browser has none. */
  static async open() {
    const opening = indexedDB.open("pimp", 1);
    opening.onupgradeneeded = () => {
      opening.result.createObjectStore("chunks", { keyPath: ["url", "index"] }).createIndex("at", "at");
    };
    const kept = new Kept(await settled(opening));
    await kept.#change((chunks) => {
      chunks.index("at").openCursor(IDBKeyRange.upperBound(Date.now() - KEPT)).onsuccess = ({ target }) => {
        const cursor = /** @type {IDBRequest<IDBCursorWithValue | null>} */ (target).result;
        cursor?.delete();
        cursor?.continue();
      };
    });
    return kept;
  }

  /** @param {(chunks: IDBObjectStore) => void} change @returns {Promise<void>} */
  #change(change) {
    const transaction = this.#database.transaction("chunks", "readwrite");
    change(transaction.objectStore("chunks"));
    return new Promise((resolve, reject) => {
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error);
    });
  }

  /** @param {string} url @returns {Promise<Envelope[]>} */
  async load(url) {
    const chunks = this.#database.transaction("chunks").objectStore("chunks");
    const found = await settled(chunks.getAll(IDBKeyRange.bound([url], [url, []])));
    return found.map(({ chunk }) => chunk);
  }

  /** @param {string} url @param {Envelope[]} chunks @returns {Promise<void>} */
  save(url, chunks) {
    return this.#change((store) => chunks.forEach((chunk) => store.put({ url, index: chunk.index, at: Date.now(), chunk })));
  }

  /** @param {string} url @returns {Promise<void>} */
  forget(url) {
    return this.#change((store) => void store.delete(IDBKeyRange.bound([url], [url, []])));
  }
}

/** @template T @param {IDBRequest<T>} request @returns {Promise<T>} */
function settled(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
