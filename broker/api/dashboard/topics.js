// Topics: what is retained, messages as they come, the busiest topics, who gets a topic and why, publish.
import {html, useState} from "/vendor/preact-htm.js";
import {
  Action, PAGE_ROWS, Pages, Problem, State, Table, bytes, call, go, number, path, query, rows, seconds, shown, useData, useStream,
} from "/lib.js";

const MESSAGES_SHOWN = 100, BUSIEST = 200;
export const FORMS = {text: (raw) => new TextDecoder().decode(raw), JSON: pretty, hex: dump};
const isFilter = (topic) => /[#+]/.test(topic);

// --- payloads: bytes of a message of the API

function payload(message) {
  if (!message.payload_raw) return new TextEncoder().encode(message.payload ?? "");
  return Uint8Array.from(atob(message.payload_raw), (char) => char.charCodeAt(0));
}
function pretty(raw) {
  const text = new TextDecoder().decode(raw);
  try { return JSON.stringify(JSON.parse(text), null, 1); } catch { return text; }
}
function dump(raw) {
  const lines = [];
  for (let at = 0; at < Math.min(raw.length, 512); at += 16) {
    const part = [...raw.slice(at, at + 16)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(48);
    lines.push(`${hex} ${part.map((byte) => byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".").join("")}`);
  }
  return lines.join("\n");
}
export const Payload = ({message, form}) => html`<pre>${FORMS[form](payload(message)).split("\n").map(shown).join("\n")}</pre>`;

export function Topics({fields, may}) {
  const topic = fields.topic ?? "", form = fields.form ?? "text";
  const search = (event) => {
    event.preventDefault();
    go("topics", [], Object.fromEntries(new FormData(event.target)));
  };
  return html`
    <form class="bar" onSubmit=${search} role="search">
      <label>topic, or topic filter <input name="topic" defaultValue=${topic} size="40"/></label>
      <label>payloads as <select name="form">${Object.keys(FORMS).map((name) => html`<option value=${name} selected=${name === form}>${name}</option>`)}</select></label>
      <button class="main">show</button>
    </form>
    ${topic && !isFilter(topic) && html`<${Explain} key=${topic} topic=${topic}/>`}
    ${may.write && html`<${Live} key=${`live ${topic}`} filter=${topic || "#"} form=${form}/>`}
    ${may.write && html`<${Retained} fields=${fields} form=${form}/>`}
    <${Traffic} key=${`traffic ${topic}`} filter=${topic}/>
    ${may.write && html`<${Publish} key=${`publish ${topic}`} topic=${isFilter(topic) ? "" : topic}/>`}`;
}

function Retained({fields, form}) {
  const page = Number(fields.page) || 1;
  const {data, error, reload} = useData(`/v1/retained${query({page_size: PAGE_ROWS, page, topic_filter: fields.topic})}`, 3);
  return html`<section><h2>Retained messages</h2><${Problem} error=${error}/>
    ${data && html`<${Table} rows=${rows(data, "messages")} columns=${[
      ["topic", (message) => html`<a href=${`#/topics${query({topic: message.topic_name, form})}`}>${shown(message.topic_name)}</a>`, "name"],
      ["payload", (message) => html`<${Payload} message=${message} form=${form}/>`],
      ["size", (message) => bytes(message.payload_bytes), "number"],
      ["QoS", (message) => message.qos, "number"],
      ["from", (message) => shown(message.client_id), "name"],
      ["expires in", (message) => message.expires_seconds == null ? "" : seconds(message.expires_seconds)],
      ["action", (message) => html`<${Action} label="delete" question=${`Delete the retained message of ${shown(message.topic_name)} on all nodes?`}
        run=${() => call("DELETE", `/v1/${path("retained", message.topic_name)}`)} done=${reload}/>`],
    ]}/>${data.total_count > PAGE_ROWS && html`<${Pages} page=${page} total=${data.total_count} go=${(next) => go("topics", [], {...fields, page: next})}/>`}`}
  </section>`;
}

function Live({filter, form}) {
  const [runs, setRuns] = useState(false);
  const [messages, isOpen] = useStream(runs && `/v1/topics/watch${query({topic_filter: filter})}`, MESSAGES_SHOWN);
  const missing = Number(messages[0]?.missing ?? 0);
  return html`<section><h2>Messages of ${shown(filter)} as they come</h2>
    <div class="bar"><button onClick=${() => setRuns(!runs)}>${runs ? "stop" : "show them"}</button>
      ${runs && html`<${State} kind=${isOpen ? "good" : "warn"}>${isOpen ? "listening" : "asking the node"}</${State}>`}
      ${missing > 0 && html`<${State} kind="warn">${number(missing)} were too many for this page</${State}>`}</div>
    ${(runs || messages.length > 0) && html`<${Table} rows=${messages} empty="none yet" columns=${[
      ["time", (message) => String(message.time).slice(11, 23)],
      ["topic", (message) => shown(message.topic_name), "name"],
      ["payload", (message) => html`<${Payload} message=${message} form=${form}/>`],
      ["QoS", (message) => `${message.qos}${message.retained ? ", retained" : ""}`],
      ["from", (message) => shown(message.client_id), "name"],
    ]}/>`}</section>`;
}

// Topics as a tree: each level with the sum of what is below it.
function tree(topics) {
  const top = {children: {}, messages: 0, bytes: 0};
  for (const {topic_name: name, messages, bytes: size} of topics) {
    let at = top;
    for (const level of ["", ...name.split("/")]) {
      if (level !== "" || at !== top) at = at.children[level] ??= {children: {}, messages: 0, bytes: 0};
      at.messages += Number(messages);
      at.bytes += Number(size);
    }
  }
  return top;
}
const Branch = ({node, passed}) => html`<ul class="tree">${Object.entries(node.children).sort(([, one], [, other]) => other.messages - one.messages)
  .map(([level, inner]) => {
    const line = html`${shown(level) || "(empty)"} <span class="soft">${number(inner.messages / passed)}/s, ${bytes(inner.bytes / passed)}/s</span>`;
    return html`<li>${Object.keys(inner.children).length ? html`<details><summary>${line}</summary><${Branch} node=${inner} passed=${passed}/></details>` : line}</li>`;
  })}</ul>`;

function Traffic({filter}) {
  const [asked, setAsked] = useState(false);
  const {data, error} = useData(asked && `/v1/topics/traffic${query({seconds: 2, topic_filter: filter, limit: BUSIEST})}`, 1);
  const passed = data?.seconds || 1;
  return html`<section><h2>Traffic that enters this node</h2>
    <div class="bar"><button onClick=${() => setAsked(!asked)}>${asked ? "stop counting" : "count it"}</button>
    ${data && html`<span>${number(data.messages / passed)} messages/s, ${bytes(data.bytes / passed)}/s, ${number(data.topics_count)} topics</span>`}</div>
    <${Problem} error=${error}/>
    ${data && html`<div class="split"><${Branch} node=${tree(rows(data, "topics"))} passed=${passed}/>
      <${Table} rows=${rows(data, "clients").slice(0, 20)} columns=${[
        ["publisher", (client) => shown(client.client_id) || "the API", "name"],
        ["messages/s", (client) => number(client.messages / passed), "number"],
        ["bytes/s", (client) => bytes(client.bytes / passed), "number"],
      ]}/></div>`}</section>`;
}

export const Verdict = ({access}) => access && html`<${State} kind=${access.allowed ? "good" : "bad"}>${access.allowed ? "allowed" : "refused"}</${State}> ${shown(access.reason)}`;

function Explain({topic}) {
  const {data, error} = useData(`/v1/topics/explain${query({topic_name: topic})}`, 3);
  return html`<section><h2>Who gets a message of ${shown(topic)}</h2><${Problem} error=${error}/>
    ${data && html`<p>${number(data.receivers_count)} ${Number(data.receivers_count) === 1 ? "client" : "clients"} of ${shown(data.node_name) || "this node"}${
      rows(data, "nodes").map((node) => `, the node ${shown(node.node_name)}${node.reached ? "" : " (when it is back)"}`)}${
      rows(data, "groups").map((group) => `, one member of ${shown(group.group)}`)}${data.linked ? ", links" : ""}${data.retained ? ". One is retained." : "."}</p>
    <${Table} rows=${rows(data, "receivers").slice(0, PAGE_ROWS)} columns=${[
      ["client", (item) => html`<a href=${`#/${path("clients", item.client_id)}`}>${shown(item.client_id)}</a>`, "name"],
      ["state", (item) => item.state],
      ["filter", (item) => shown(item.topic_filter), "name"],
      ["QoS", (item) => item.qos, "number"],
      ["may read", (item) => html`<${Verdict} access=${item.read}/>`],
    ]}/>`}</section>`;
}

function Publish({topic}) {
  const [told, setTold] = useState(null);
  const send = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    try {
      await call("POST", "/v1/publish", {topic_name: form.get("topic"), payload: form.get("payload"), qos: Number(form.get("qos")),
        retained: form.get("retained") === "on"});
      setTold(html`<p role="status">published at ${new Date().toLocaleTimeString()}</p>`);
    } catch (error) { setTold(html`<${Problem} error=${error}/>`); }
  };
  return html`<section><h2>Publish</h2><form class="bar" onSubmit=${send}>
    <label>topic <input name="topic" required defaultValue=${topic} size="32"/></label>
    <label>QoS <select name="qos"><option value="0">0</option><option value="1">1</option><option value="2">2</option></select></label>
    <label>payload <textarea name="payload"></textarea></label>
    <label>retained <input type="checkbox" name="retained"/></label>
    <button class="main">publish</button></form>${told}</section>`;
}
