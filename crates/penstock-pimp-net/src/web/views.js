// @ts-check
/**
 * How a payload is shown while it comes. What a job holds becomes text nodes, or an image: nothing of it is ever put in as HTML.
 *
 * @typedef {object} View
 * @property {(text: string) => void} [text] the next text
 * @property {(whole: Blob) => void | Promise<void>} [end] all of it is there
 */

/** Characters shown; a browser lays out no more in good time. What is beyond can be saved. */
const CHARACTERS = 2 << 20;
/** Rows shown. */
const ROWS = 5_000;
/** Columns shown. */
const COLUMNS = 100;
/** Images that browsers show in an img element, where no script runs. */
const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp", "image/svg+xml"];

/** @template {keyof HTMLElementTagNameMap} T @param {Element} parent @param {T} name @param {string} [text] */
function add(parent, name, text) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

/** @param {Element} main @param {string} what */
const beyond = (main, what) => void add(main, "p", `${what} are not shown. Save has all of it.`);

/** @param {Element} main @returns {View} */
function plain(main) {
  const pre = add(main, "pre");
  let left = CHARACTERS;
  return {
    text(text) {
      if (left <= 0) return;
      pre.append(text.slice(0, left));
      left -= text.length;
      if (left <= 0) beyond(main, `Characters above ${CHARACTERS}`);
    },
  };
}

/** Rows whose columns may grow. @param {Element} main */
function table(main) {
  const element = add(add(main, "div"), "table");
  element.parentElement?.classList.add("rows");
  const head = element.createTHead().insertRow();
  const body = element.createTBody();
  /** @type {Map<string, number>} */
  const places = new Map();
  let [rows, columns] = [0, 0];
  /** One more; several may have the same name. @param {string} name @returns {number} its place */
  const column = (name) => {
    columns += 1;
    if (columns === COLUMNS + 1) beyond(main, `Columns above ${COLUMNS}`);
    if (columns <= COLUMNS) add(head, "th", name);
    return columns - 1;
  };
  return {
    column,
    /** The place of the column of this name. @param {string} name */
    named(name) {
      const place = places.get(name) ?? column(name);
      if (place < COLUMNS) places.set(name, place);
      return place;
    },
    /** @param {() => [number, string][]} cells the texts of a row, and their places */
    row(cells) {
      rows += 1;
      if (rows === ROWS + 1) beyond(main, `Rows above ${ROWS}`);
      if (rows > ROWS) return;
      /** @type {string[]} */
      const texts = [];
      for (const [place, text] of cells()) if (place < COLUMNS) texts[place] = text;
      const row = body.insertRow();
      for (const text of texts) row.insertCell().textContent = text ?? "";
    },
  };
}

/** Records of RFC 4180, also such that are cut anywhere. @param {string} separator @param {(record: string[]) => void} found */
function records(separator, found) {
  let [field, quoted, quote, any] = ["", false, false, false];
  /** @type {string[]} */
  let record = [];
  const end = () => {
    record.push(field);
    if (record.length > 1 || field || quote) found(record);
    [field, quote, any, record] = ["", false, false, []];
  };
  return {
    /** @param {string} text */
    push(text) {
      for (const letter of text) {
        if (quoted && letter !== '"') field += letter;
        else if (letter === '"') {
          // Two of them within quotes are one; the first of them ended the quotes, the second begins them again.
          if (!quoted && quote && any) field += '"';
          quoted = !quoted;
          [quote, any] = [true, !quoted];
        } else if (letter === separator) {
          record.push(field);
          [field, any] = ["", false];
        } else if (letter === "\n") end();
        else if (letter !== "\r") field += letter;
      }
    },
    finish() {
      if (field || record.length) end();
    },
  };
}

/** @param {Element} main @param {string} separator @returns {View} */
function separated(main, separator) {
  const rows = table(main);
  /** @type {string[] | undefined} */
  let names;
  let known = 0;
  const reading = records(separator, (record) => {
    if (names) {
      for (; known < record.length; known += 1) rows.column(`column ${known + 1}`);
      rows.row(() => record.map((value, place) => [place, value]));
      return;
    }
    names = record;
    known = names.length;
    names.forEach(rows.column);
  });
  return { text: reading.push, end: () => reading.finish() };
}

/** @typedef {{ source: string } | { text: string } | { items: Json[] } | { members: [string, Json][] }} Json */

const TOKEN = /"(?:[^"\\]|\\.)*"|[[\]{}:,]|[^\s[\]{}:,"]+/g;

/**
 * JSON as it is written: numbers keep their digits, and of names that come twice both stay. Throws where it is none.
 *
 * @param {string} text @returns {Json}
 */
function parse(text) {
  JSON.parse(text);
  const tokens = text.match(TOKEN) ?? [];
  let at = 0;
  /** Up to this end. @param {string} end @param {() => void} one */
  const each = (end, one) => {
    while (at < tokens.length && tokens[at] !== end) {
      one();
      if (tokens[at] === ",") at += 1;
    }
    at += 1;
  };
  /** @returns {Json} */
  const value = () => {
    const token = tokens[at++] ?? "";
    if (token === "[") {
      /** @type {Json[]} */
      const items = [];
      each("]", () => items.push(value()));
      return { items };
    }
    if (token === "{") {
      /** @type {[string, Json][]} */
      const members = [];
      each("}", () => {
        const name = JSON.parse(tokens[at] ?? "");
        at += 2;
        members.push([name, value()]);
      });
      return { members };
    }
    return token.startsWith('"') ? { text: JSON.parse(token) } : { source: token };
  };
  return value();
}

/** As text, in lines that begin with `before`, or in one. @param {Json} value @param {string} [before] @returns {string} */
function written(value, before) {
  if ("source" in value) return value.source;
  if ("text" in value) return JSON.stringify(value.text);
  const inner = before === undefined ? undefined : `${before}  `;
  const parts =
    "items" in value
      ? value.items.map((item) => written(item, inner))
      : value.members.map(([name, each]) => `${JSON.stringify(name)}:${inner === undefined ? "" : " "}${written(each, inner)}`);
  const [begin, end] = "items" in value ? "[]" : "{}";
  const all = inner === undefined || !parts.length ? parts.join(",") : `\n${inner}${parts.join(`,\n${inner}`)}\n${before}`;
  return `${begin}${all}${end}`;
}

/** @param {Json} value */
const cell = (value) => ("text" in value ? value.text : written(value));

/** The row of a value: its members, or itself. @param {ReturnType<typeof table>} rows @param {Json} value */
function row(rows, value) {
  rows.row(() => {
    if (!("members" in value)) return [[rows.named("value"), cell(value)]];
    /** @type {Map<string, number>} */
    const seen = new Map();
    return value.members.map(([name, each]) => {
      const times = (seen.get(name) ?? 0) + 1;
      seen.set(name, times);
      return [rows.named(times > 1 ? `${name} (${times})` : name), cell(each)];
    });
  });
}

/** A JSON value a line. @param {Element} main @returns {View} */
function lines(main) {
  const rows = table(main);
  let rest = "";
  /** @param {string} line */
  const show = (line) => {
    if (!line.trim()) return;
    try {
      row(rows, parse(line));
    } catch {
      rows.row(() => [[rows.named("no JSON"), line]]);
    }
  };
  return {
    text(text) {
      const found = (rest + text).split("\n");
      rest = found.pop() ?? "";
      found.forEach(show);
    },
    end: () => show(rest),
  };
}

/** As it comes, then indented; a list of objects as a table. @param {Element} main @returns {View} */
function json(main) {
  const raw = plain(main);
  return {
    ...raw,
    async end(whole) {
      if (whole.size > CHARACTERS) return;
      let value;
      try {
        value = parse(await whole.text());
      } catch {
        return;
      }
      main.replaceChildren();
      if ("items" in value && value.items.length && value.items.every((each) => "members" in each || "items" in each)) {
        const rows = table(main);
        value.items.forEach((each) => row(rows, each));
      } else {
        plain(main).text?.(written(value, ""));
      }
    },
  };
}

/** @param {Element} main @param {string} type @returns {View} */
function image(main, type) {
  return {
    end(whole) {
      const element = add(main, "img");
      element.alt = "the payload";
      element.src = URL.createObjectURL(new Blob([whole], { type }));
    },
  };
}

/** The view of a MIME type. @param {Element} main @param {string} contentType @returns {View} */
export function view(main, contentType) {
  const type = (contentType.split(";")[0] ?? "").trim().toLowerCase();
  if (IMAGES.includes(type)) return image(main, type);
  if (type === "text/csv") return separated(main, ",");
  if (type === "text/tab-separated-values") return separated(main, "\t");
  if (["application/x-ndjson", "application/ndjson", "application/jsonl", "application/json-lines"].includes(type)) return lines(main);
  if (type === "application/json" || type.endsWith("+json")) return json(main);
  if (type.startsWith("text/")) return plain(main);
  add(main, "p", `${type} is not shown here. It can be saved when it is whole.`);
  return {};
}
