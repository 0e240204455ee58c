// Log: what the nodes have kept: of all or of one, from a time, by filter, decoded; and those who read it.
import {html, useRef} from "/vendor/preact-htm.js";
import {NotLoaded, PAGE_ROWS, Problem, Since, State, Table, bytes, go, number, query, rows, shown, useData, useEach} from "/lib.js";
import {FORMS, Payload} from "/topics.js";

const LOGS_MERGED = 16; // of which records are shown together
const FILTERED = 200; // records that are searched at once on the way back
const described = (node) => `/v1/event_log${query({node})}`;
export const time = (ns) => Number(ns) ? new Date(Number(BigInt(ns) / 1000000n)).toISOString() : null;

// {own, logs, faults}: the descriptions of the logs of all nodes, this one's first; the errors of those that do not answer.
export function useLogs(isOn) {
  const {data: own, error} = useData(isOn && "/v1/event_log", 3);
  const others = rows(own, "members").filter((one) => one.has_log && one.status === "ALIVE").map((one) => one.node).sort();
  const {found, faults} = useEach(others.map(described), Math.max(3, others.length / 5));
  return {
    own, error, logs: [own, ...others.map((node) => found[described(node)])].filter(Boolean),
    faults: others.map((node) => [node, faults[described(node)]]).filter(([, fault]) => fault),
  };
}

export function Log({fields, may, has}) {
  const {own, logs, error, faults} = useLogs(has("event_log"));
  if (!has("event_log")) return html`<${NotLoaded} name="event_log"/>`;
  if (!own) return html`<${Problem} error=${error}/>`;
  const chosen = logs.filter((log) => log.node === fields.node);
  return html`
    ${may.write && html`<${Records} key=${JSON.stringify({...fields, form: ""})} fields=${fields} all=${logs}
      logs=${chosen.length ? chosen : logs.slice(0, LOGS_MERGED)}/>`}
    <section><h2>Logs</h2><${Table} rows=${logs} to=${(log) => `#/log${query({node: log.node})}`} columns=${[
      ["node", (log) => shown(log.node), "name"],
      ["state", (log) => log.stopped ? html`<${State} kind="bad">stopped: ${shown(log.stopped)}</${State}>` : html`<${State} kind="good">writing</${State}>`],
      ["records", (log) => number(Number(log.next_offset) - Number(log.first_offset)), "number"],
      ["offsets", (log) => `${log.first_offset} to ${log.next_offset}`, "number"],
      ["from", (log) => html`<${Since} time=${time(log.first_time_ns)}/>`],
      ["to", (log) => html`<${Since} time=${time(log.last_time_ns)}/>`],
      ["size", (log) => bytes(log.bytes), "number"],
      ["lost", (log) => number(log.records_lost), "number"],
      ["damaged", (log) => number(rows(log, "damaged").length + rows(log, "gaps").length), "number"],
      ["id", (log) => shown(log.log_id).slice(0, 8)],
    ]}/>
    ${faults.map(([node, fault]) => html`<p><${State} kind="warn">${shown(node)}: ${shown(fault.message)}</${State}></p>`)}</section>
    <section><h2>Readers</h2><${Holds} logs=${logs}/></section>`;
}

// The groups of readers that hold the logs, and how far behind they are.
export function Holds({logs}) {
  const holds = logs.flatMap((log) => rows(log, "holds").map((hold) => ({...hold, log})));
  return html`<${Table} rows=${holds} empty="no query holds a log" columns=${[
    ["group", (hold) => shown(hold.group), "name"],
    ["query", (hold) => shown(hold.query), "name"],
    ["node", (hold) => shown(hold.log.node), "name"],
    ["read up to", (hold) => number(hold.offset), "number"],
    ["behind by", (hold) => `${number(Number(hold.log.next_offset) - Number(hold.offset))} records`, "number"],
    ["last heard", (hold) => html`<${Since} time=${time(hold.held_at_ns)}/>`],
  ]}/>`;
}

// --- pages of several logs: a place is {node: offset}, written as NODE:OFFSET,…

const written = (place) => Object.entries(place).map(([node, offset]) => `${encodeURIComponent(node)}:${offset}`).join(",");
const placed = (text) => text && Object.fromEntries(text.split(",").map((part) => {
  const [node, offset] = part.split(":");
  return [decodeURIComponent(node), Number(offset)];
}));
// Times have 0, 3, 6 or 9 digits of a second.
const sortable = ({time: text}) => `${text.slice(0, 19)}.${(/\.(\d+)/.exec(text)?.[1] ?? "").padEnd(9, "0")}`;
const inOrder = (one, other) => sortable(one) < sortable(other) ? -1 : sortable(one) > sortable(other) ? 1 : one.offset - other.offset;

// `at`: records from this place on; `from`: from this time on; `before`: the last ones before this place; none: the newest.
function Records({fields, all, logs: chosen}) {
  const at = placed(fields.at), before = placed(fields.before), isNewest = !at && !before && !fields.from;
  const logs = at || before ? chosen.filter((log) => log.node in (at ?? before)) : chosen, nodes = logs.map((log) => log.node);
  const form = fields.form ?? "text", filter = fields.topic ?? "";
  const isBack = isNewest || before, back = filter ? FILTERED : PAGE_ROWS;
  const ends = Object.fromEntries(logs.map((log) => [log.node, before ? before[log.node] : Number(log.next_offset)]));
  const paths = Object.fromEntries(logs.map((log) => {
    const start = isBack ? {from_offset: Math.max(0, ends[log.node] - back)}
      : at ? {from_offset: at[log.node]} : {time: fields.from};
    return [log.node, `/v1/event_log/records${query({...start, topic_filter: filter, limit: isBack ? back : PAGE_ROWS, node: log.node})}`];
  }));
  const {found, faults} = useEach(Object.values(paths), isNewest ? Math.max(3, nodes.length / 2) : 30);
  const kept = useRef({}); // what is shown while newer records are asked for
  for (const node of nodes) if (found[paths[node]]) kept.current[node] = found[paths[node]];
  const answers = Object.fromEntries(nodes.filter((node) => kept.current[node]).map((node) => [node, kept.current[node]]));
  const lists = Object.fromEntries(Object.entries(answers).map(([node, answer]) =>
    [node, rows(answer, "records").map((record) => ({...record, node})).filter((record) => !before || record.offset < ends[node])]));
  const sorted = Object.values(lists).flat().sort(inOrder);
  const page = isBack ? sorted.slice(-PAGE_ROWS) : sorted.slice(0, PAGE_ROWS);
  const first = (node) => page.find((record) => record.node === node);
  const place = (offset) => written(Object.fromEntries(Object.keys(answers).map((node) => [node, offset(node)])));
  const older = () => place((node) => Number(first(node)?.offset ?? (!isBack ? lists[node][0]?.offset ?? answers[node].next_offset
    : lists[node].length ? ends[node] : Math.max(0, ends[node] - back))));
  const newer = () => place((node) => {
    if (isBack) return ends[node];
    const count = page.filter((record) => record.node === node).length;
    return Number(lists[node][count]?.offset ?? answers[node].next_offset);
  });
  const isEnd = isNewest || (!before && sorted.length === page.length && Object.values(answers).every((answer) => answer.end));
  const asked = {node: fields.node, topic: filter, form: fields.form};
  const search = (event) => {
    event.preventDefault();
    const {local, ...given} = Object.fromEntries(new FormData(event.target));
    go("log", [], {...given, from: local ? new Date(local).toISOString() : ""});
  };
  return html`<section><h2>Records</h2>
    <form class="bar" onSubmit=${search} role="search">
      <label>node <select name="node"><option value="">${all.length > LOGS_MERGED ? `the first ${LOGS_MERGED}` : "all"}</option>
        ${all.map((log) => html`<option value=${log.node} selected=${log.node === fields.node}>${shown(log.node)}</option>`)}</select></label>
      <label>from (time here) <input type="datetime-local" step="1" name="local" defaultValue=${localTime(fields.from)}/></label>
      <label>topic filter <input name="topic" defaultValue=${filter} size="30"/></label>
      <label>payloads as <select name="form">${Object.keys(FORMS).map((name) => html`<option value=${name} selected=${name === form}>${name}</option>`)}</select></label>
      <button class="main">show</button><a href=${`#/log${query(asked)}`}>newest</a></form>
    ${nodes.filter((node) => faults[paths[node]]).map((node) => html`<${Problem} error=${faults[paths[node]]}/>`)}
    ${Object.keys(answers).length > 0 && html`<${Table} rows=${isNewest ? [...page].reverse() : page} empty="no record is like this here" columns=${[
      ...(all.length > 1 ? [["node", (record) => shown(record.node), "name"]] : []),
      ["offset", (record) => record.offset, "number"],
      ["time", (record) => String(record.time).slice(0, 23).replace("T", " ")],
      ["topic", (record) => shown(record.topic_name), "name"],
      ["payload", (record) => html`<${Payload} message=${record} form=${form}/>`],
      ["size", (record) => bytes(record.payload_bytes), "number"],
      ["QoS", (record) => `${record.qos}${record.retained ? ", retained" : ""}`],
      ["from", (record) => shown(record.client_id), "name"],
    ]}/>
    <div class="bar"><button onClick=${() => go("log", [], {...asked, before: older()})}>older</button>
      <button disabled=${isEnd} onClick=${() => go("log", [], {...asked, at: newer()})}>newer</button></div>`}</section>`;
}

// The value of an input for local times.
function localTime(text) {
  const at = text ? new Date(text) : null;
  return at && !Number.isNaN(at.getTime()) ? new Date(at.getTime() - at.getTimezoneOffset() * 60000).toISOString().slice(0, 19) : "";
}
