// What all views share: calls of the API, data that is asked for again and again, formats, tables.
import {html, useEffect, useRef, useState} from "/vendor/preact-htm.js";

const HEADERS = {"X-Gmqttd-Page": "1"};
const ANSWER_MS = 10000, SLOW_MS = 2000, RETRY_MS = 3000;
export const PAGE_ROWS = 60;

export class ApiError extends Error {
  constructor(status, text) { super(text); this.status = status; }
}

// One call. Throws ApiError: status 0 for a node that does not answer.
export async function call(method, path, body) {
  const options = {method, headers: {...HEADERS}, signal: AbortSignal.timeout(ANSWER_MS), cache: "no-store"};
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  let answer, text, isSlow = false;
  const late = setTimeout(() => { isSlow = true; watchers.slow(1); }, SLOW_MS);
  try {
    answer = await fetch(path, options);
    text = await answer.text();
  } catch (error) {
    throw new ApiError(0, error.name === "TimeoutError" ? "no answer within 10 s" : "the node cannot be reached");
  } finally {
    clearTimeout(late);
    if (isSlow) watchers.slow(-1);
  }
  let found = null;
  try { found = text ? JSON.parse(text) : {}; } catch { /* told below */ }
  if (!answer.ok) throw new ApiError(answer.status, found?.message || `HTTP ${answer.status}`);
  if (found === null) throw new ApiError(0, "the answer came only in part");
  return found;
}

// What a view says whose plugin does not run on this node.
export const NotLoaded = ({name}) => html`<p class="soft">The plugin ${name} does not run on this node: name it in plugin_order.</p>`;

// What the page is told of calls: `slow` of one more or one less that takes longer than SLOW_MS.
export const watchers = {failed: () => {}, answered: () => {}, refused: () => {}, slow: () => {}};

// {found, faults, reload}: paths that are asked for every `seconds`, while the page is seen; answers and ApiErrors by path. What
// came last stays after a failure.
export function useEach(paths, seconds = 2) {
  const [state, setState] = useState({found: {}, faults: {}});
  const again = useRef(() => {});
  const key = JSON.stringify(paths);
  useEffect(() => {
    if (!paths.length) return undefined;
    let ended = false, timer = 0, asking = null;
    const only = (values) => Object.fromEntries(paths.filter((path) => path in values).map((path) => [path, values[path]]));
    const told = (path, data, error) => {
      if (error?.status === 401) watchers.refused();
      else if (error?.status === 0) watchers.failed(error.message);
      else watchers.answered();
      if (!ended) setState(({found, faults}) => ({
        found: error ? only(found) : {...only(found), [path]: data}, faults: {...only(faults), [path]: error},
      }));
    };
    const round = () => Promise.all(paths.map((path) =>
      call("GET", path).then((data) => told(path, data, null), (error) => told(path, null, error))));
    const ask = async () => {
      clearTimeout(timer);
      if (!document.hidden) {
        asking ??= round();
        await asking;
        asking = null;
      }
      clearTimeout(timer);
      if (!ended) timer = setTimeout(ask, seconds * 1000);
    };
    const shown = () => { if (!document.hidden) ask(); };
    document.addEventListener("visibilitychange", shown);
    again.current = ask;
    ask();
    return () => { ended = true; clearTimeout(timer); document.removeEventListener("visibilitychange", shown); };
  }, [key, seconds]);
  return {...state, reload: () => again.current()};
}

// {data, error, reload} of one path, or of none.
export function useData(path, seconds = 2) {
  const {found, faults, reload} = useEach(path ? [path] : [], seconds);
  return {data: found[path] ?? null, error: faults[path] ?? null, reload};
}

// What `rows` have more a second than when they were asked before: {name: figure}.
export function useRates(rows, name, figure) {
  const last = useRef({at: 0, figures: {}, rates: {}});
  const figures = Object.fromEntries(rows.map((row) => [name(row), figure(row)]));
  if (JSON.stringify(figures) !== JSON.stringify(last.current.figures) || Date.now() - last.current.at > 5000) {
    const passed = (Date.now() - last.current.at) / 1000, before = last.current.figures;
    // A counter that fell is that of a process that started again.
    const rates = Object.fromEntries(Object.keys(figures).filter((key) => key in before && passed > 0)
      .map((key) => [key, Math.max(0, figures[key] - before[key]) / passed]));
    last.current = {at: Date.now(), figures, rates};
  }
  return last.current.rates;
}

// The newest answers of a stream, the newest first. The browser resumes it by itself; what comes twice is shown once. Answers of
// one moment are shown together. [answers, whether the stream is open].
export function useStream(path, most) {
  const [found, setFound] = useState([]);
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    if (!path) return undefined;
    let coming = [], source = null, timer = 0;
    // Numbers begin anew with the process of the node.
    const name = (one) => one.number ? `${one.number} ${one.time}` : null;
    const show = () => {
      const names = new Set(coming.map(name).filter(Boolean));
      const newest = coming.reverse();
      coming = [];
      setFound((old) => [...newest, ...old.filter((one) => !names.has(name(one)))].slice(0, most));
    };
    const open = () => {
      source = new EventSource(path);
      source.onmessage = ({data}) => {
        if (!coming.length) setTimeout(show, 200);
        coming.push(JSON.parse(data));
        if (coming.length > most) coming.shift();
      };
      source.onopen = () => setOpen(true);
      source.onerror = () => {
        setOpen(false);
        // The browser tries again after a lost connection, and not after an answer such as 429 or 503.
        if (source.readyState === EventSource.CLOSED) timer = setTimeout(open, RETRY_MS);
      };
    };
    open();
    return () => { clearTimeout(timer); source.close(); setOpen(false); };
  }, [path, most]);
  return [found, isOpen];
}

// --- formats: everything from the API is shown as text, so that no name becomes markup

const CONTROL = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
export const shown = (text) =>
  String(text ?? "").replace(CONTROL, (char) => "\\u" + char.charCodeAt(0).toString(16).padStart(4, "0"));
export const number = (value) => Number(value ?? 0).toLocaleString("en", {maximumFractionDigits: 1});
export function bytes(value) {
  let amount = Number(value ?? 0), unit = 0;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  while (amount >= 1024 && unit < units.length - 1) { amount /= 1024; unit += 1; }
  return `${amount.toLocaleString("en", {maximumFractionDigits: amount < 10 && unit ? 1 : 0})} ${units[unit]}`;
}
export function seconds(value) {
  const amount = Number(value ?? 0);
  if (amount < 1) return `${Math.round(amount * 1000)} ms`;
  if (amount < 120) return `${Math.round(amount)} s`;
  if (amount < 7200) return `${Math.round(amount / 60)} min`;
  if (amount < 172800) return `${Math.round(amount / 3600)} h`;
  return `${Math.round(amount / 86400)} d`;
}
export const ago = (time) => time ? `${seconds((Date.now() - Date.parse(time)) / 1000)} ago` : "";

export const Since = ({time}) => time ? html`<time datetime=${time} title=${time}>${ago(time)}</time>` : null;
// kind: good, warn, bad, off. The sign before the word says it, too, without a colour.
export const State = ({kind, children}) => html`<span class="state ${kind}">${children}</span>`;

export function Problem({error}) {
  if (!error) return null;
  return html`<p class="error" role="alert">${shown(error.message)}</p>`;
}

// columns: [title, row => content, class]; one that is empty in all rows is left out. `to`: row => address of a view. More than
// PAGE_ROWS rows are shown by pages.
export function Table({columns, rows, empty = "none", to}) {
  const [page, setPage] = useState(1);
  if (!rows.length) return html`<p class="soft">${empty}</p>`;
  const at = Math.min(page, Math.ceil(rows.length / PAGE_ROWS));
  const cells = rows.slice((at - 1) * PAGE_ROWS, at * PAGE_ROWS).map((row) => columns.map(([, content]) => content(row)));
  const full = columns.map((_, index) => index).filter((index) => cells.some((row) => row[index] !== "" && row[index] != null));
  return html`<table class="rows">
    <thead><tr>${full.map((index) => html`<th class=${columns[index][2] || ""} scope="col">${columns[index][0]}</th>`)}</tr></thead>
    <tbody>${cells.map((row, line) => html`<tr class=${to ? "link" : ""}>${full.map((index) => html`<td class=${columns[index][2] || ""} data-title=${columns[index][0]}>
      ${to && index === 0 ? html`<a href=${to(rows[(at - 1) * PAGE_ROWS + line])}>${row[0]}</a>` : row[index]}</td>`)}</tr>`)}</tbody>
  </table>${rows.length > PAGE_ROWS && html`<${Pages} page=${at} total=${rows.length} go=${setPage}/>`}`;
}

export function Pages({page, total, go}) {
  const last = Math.max(1, Math.ceil(total / PAGE_ROWS));
  return html`<div class="bar" role="navigation" aria-label="pages">
    <button disabled=${page <= 1} onClick=${() => go(page - 1)}>previous</button>
    <span>page ${number(page)} of ${number(last)}, ${number(total)} in all</span>
    <button disabled=${page >= last} onClick=${() => go(page + 1)}>next</button>
  </div>`;
}

// A button whose action is asked about first, and whose failure is shown beside it.
export function Action({label, question, run, done}) {
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const act = async () => {
    if (question && !window.confirm(question)) return;
    setBusy(true);
    try { await run(); setError(null); done?.(); } catch (found) { setError(found); }
    setBusy(false);
  };
  return html`<span><button disabled=${busy} onClick=${act}>${label}</button> <${Problem} error=${error}/></span>`;
}

export const rows = (found, name) => found?.[name] ?? [];
export const path = (...parts) => parts.map(encodeURIComponent).join("/");
export const query = (fields) => {
  const text = new URLSearchParams(Object.entries(fields).filter(([, value]) => value !== "" && value != null)).toString();
  return text ? `?${text}` : "";
};

// --- the address: #/VIEW/PART?field=value

export function here() {
  const [where, rest = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view = "", ...parts] = where.split("/").map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  return {view, parts, fields: Object.fromEntries(new URLSearchParams(rest))};
}
export const go = (view, parts = [], fields = {}) => { location.hash = `#/${path(view, ...parts)}${query(fields)}`; };
