// Log: what the node has kept: from a time, by filter, decoded; and those who read it.
import {html} from "/vendor/preact-htm.js";
import {NotLoaded, Problem, Since, State, Table, bytes, go, number, query, rows, shown, useData} from "/lib.js";
import {FORMS, Payload} from "/topics.js";

const PAGE = 60;
const time = (ns) => Number(ns) ? new Date(Number(BigInt(ns) / 1000000n)).toISOString() : null;

export function Log({fields, may, has}) {
  const {data, error} = useData(has("event_log") && "/v1/event_log", 3);
  if (!has("event_log")) return html`<${NotLoaded} name="event_log"/>`;
  if (!data) return html`<${Problem} error=${error}/>`;
  const gaps = [...rows(data, "damaged"), ...rows(data, "gaps")];
  return html`
    <section><h2>The log of ${shown(data.node)}</h2><dl>
      <dt>state</dt><dd>${data.stopped ? html`<${State} kind="bad">stopped: ${shown(data.stopped)}</${State}>` : html`<${State} kind="good">writing</${State}>`}</dd>
      <dt>records</dt><dd>${number(Number(data.next_offset) - Number(data.first_offset))}, offsets ${data.first_offset} to ${data.next_offset}</dd>
      <dt>from</dt><dd><${Since} time=${time(data.first_time_ns)}/></dd>
      <dt>to</dt><dd><${Since} time=${time(data.last_time_ns)}/></dd>
      <dt>size</dt><dd>${bytes(data.bytes)} in ${number(data.segments)} segments</dd>
      <dt>lost</dt><dd>${number(data.records_lost)} records, ${number(gaps.length)} damaged places</dd>
      <dt>id</dt><dd>${shown(data.log_id)}</dd></dl></section>
    ${may.write && html`<${Records} fields=${fields} end=${data.next_offset}/>`}
    <section><h2>Logs of other nodes</h2><${Table} rows=${rows(data, "members")} columns=${[
      ["node", (member) => shown(member.node), "name"],
      ["member is", (member) => shown(member.status).toLowerCase()],
      ["API", (member) => shown(member.api_addr)],
    ]}/></section>`;
}

// The newest records, or those from a time or an offset on.
function Records({fields, end}) {
  const form = fields.form ?? "text", topic = fields.topic ?? "";
  const isNewest = !fields.from && !fields.offset;
  const start = isNewest ? {from_offset: Math.max(0, Number(end) - PAGE)} : fields.offset ? {from_offset: fields.offset} : {time: fields.from};
  const {data, error} = useData(`/v1/event_log/records${query({...start, topic_filter: topic, limit: PAGE})}`, isNewest ? 3 : 30);
  const found = rows(data, "records");
  const search = (event) => {
    event.preventDefault();
    const {local, ...asked} = Object.fromEntries(new FormData(event.target));
    go("log", [], {...asked, from: local ? new Date(local).toISOString() : ""});
  };
  const move = (offset) => go("log", [], {form, topic, offset: Math.max(0, offset)});
  return html`<section><h2>Records</h2>
    <form class="bar" onSubmit=${search} role="search">
      <label>from (time here) <input type="datetime-local" step="1" name="local" defaultValue=${localTime(fields.from)}/></label>
      <label>topic filter <input name="topic" defaultValue=${topic} size="30"/></label>
      <label>payloads as <select name="form">${Object.keys(FORMS).map((name) => html`<option selected=${name === form}>${name}</option>`)}</select></label>
      <button class="main">show</button><a href="#/log">newest</a></form>
    <${Problem} error=${error}/>
    ${data && html`<${Table} rows=${isNewest ? [...found].reverse() : found} empty="no record is like this here" columns=${[
      ["offset", (record) => record.offset, "number"],
      ["time", (record) => String(record.time).slice(0, 23).replace("T", " ")],
      ["topic", (record) => shown(record.topic_name), "name"],
      ["payload", (record) => html`<${Payload} message=${record} form=${form}/>`],
      ["size", (record) => bytes(record.payload_bytes), "number"],
      ["QoS", (record) => `${record.qos}${record.retained ? ", retained" : ""}`],
      ["from", (record) => shown(record.client_id), "name"],
    ]}/>
    <div class="bar"><button onClick=${() => move(Number(found[0]?.offset ?? data.next_offset) - PAGE)}>older</button>
      <button disabled=${data.end} onClick=${() => move(Number(data.next_offset))}>newer</button></div>`}</section>`;
}

// The value of an input for local times.
function localTime(text) {
  const at = text ? new Date(text) : null;
  return at && !Number.isNaN(at.getTime()) ? new Date(at.getTime() - at.getTimezoneOffset() * 60000).toISOString().slice(0, 19) : "";
}
