// Clients: search, one session with its home and keepers, kick, trace.
import {html, useState} from "/vendor/preact-htm.js";
import {
  Action, PAGE_ROWS, Pages, Problem, Since, State, Table, bytes, call, go, number, path, query, rows, seconds, shown, useData,
} from "/lib.js";

const VERSIONS = {3: "3.1", 4: "3.1.1", 5: "5"};
const FOR_EVER = 4294967295;
const EVENTS = {connected: "good", disconnected: "off", refused: "bad", session_ended: "warn"};
const LINES_SHOWN = 100;
const connected = (client) => client.disconnected_at ? html`<${State} kind="off">away</${State}>` : html`<${State} kind="good">connected</${State}>`;

export function Clients({parts, fields, may, has}) {
  return parts[0] ? html`<${Client} id=${parts[0]} may=${may} has=${has}/>` : html`<${List} fields=${fields}/>`;
}

function List({fields}) {
  const page = Number(fields.page) || 1;
  const sought = {client_id: fields.client_id, username: fields.username, remote_addr: fields.remote_addr, connected: fields.connected};
  const {data, error} = useData(`/v1/clients${query({page_size: PAGE_ROWS, page, ...sought})}`);
  const search = (event) => {
    event.preventDefault();
    go("clients", [], Object.fromEntries(new FormData(event.target)));
  };
  return html`
    <form class="bar" onSubmit=${search} role="search">
      <label>client id begins with <input name="client_id" defaultValue=${fields.client_id ?? ""}/></label>
      <label>user name <input name="username" defaultValue=${fields.username ?? ""}/></label>
      <label>address begins with <input name="remote_addr" defaultValue=${fields.remote_addr ?? ""}/></label>
      <label>state <select name="connected" defaultValue=${fields.connected ?? ""}>
        <option value="">all</option><option value="true">connected</option><option value="false">away</option></select></label>
      <button class="main">search</button>
    </form>
    <${Problem} error=${error}/>
    ${data && html`<section><${Table} rows=${rows(data, "clients")} empty=${Object.values(sought).some(Boolean) ? "no client is like this" : "no clients"}
      to=${(client) => `#/${path("clients", client.client_id)}`} columns=${[
        ["client id", (client) => shown(client.client_id) || "(empty)", "name"],
        ["state", connected],
        ["since", (client) => html`<${Since} time=${client.disconnected_at || client.connected_at}/>`],
        ["user", (client) => shown(client.username), "name"],
        ["address", (client) => shown(client.remote_addr)],
        ["MQTT", (client) => VERSIONS[client.version] ?? client.version],
        ["subscriptions", (client) => number(client.subscriptions_current), "number"],
        ["in flight", (client) => number(client.inflight_len), "number"],
        ["waiting", (client) => number(client.queue_len), "number"],
        ["dropped", (client) => number(client.message_dropped), "number"],
      ]}/></section>
      <${Pages} page=${page} total=${data.total_count ?? 0} go=${(next) => go("clients", [], {...fields, page: next})}/>`}`;
}

function Client({id, may, has}) {
  const {data, error, reload} = useData(`/v1/${path("clients", id)}`);
  const session = useData(has("federation") && `/v1/federation/${path("sessions", id)}`, 5).data;
  const filters = useData(`/v1/filter_subscriptions${query({client_id: id, limit: 1000})}`, 5).data;
  const client = data?.client, events = rows(useData(`/v1/${path("clients", id)}/history`, 3).data, "events");
  const history = html`<section><h2>History at this node</h2><${Table} rows=${events} columns=${[
    ["time", (event) => html`<${Since} time=${event.time}/>`],
    ["event", (event) => html`<${State} kind=${EVENTS[event.kind] ?? "off"}>${event.kind.replace("_", " ")}</${State}>`],
    ["address", (event) => shown(event.remote_addr)],
    ["reason", (event) => shown(event.text)],
  ]}/></section>`;
  const back = html`<p><a href="#/clients">all clients</a></p>`;
  const place = session && (session.state === "unknown" ? "This node has not heard of a session of it; another one may have it."
    : `Its session is ${session.state}${session.home ? `: ${shown(session.home)} is its home` : ""}.`);
  if (!client) return html`${back}<${Problem} error=${error}/>${error && place && html`<p>${place}</p>`}${history}`;
  const until = client.session_expiry === FOR_EVER ? "for ever" : client.session_expiry ? seconds(client.session_expiry) : "with the connection";
  const drop = (clean) => call("DELETE", `/v1/${path("clients", id)}${clean ? "?clean_session=true" : ""}`);
  return html`${back}
    <section><h2>${shown(client.client_id)}</h2>
      <dl>
        <dt>state</dt><dd>${connected(client)} <${Since} time=${client.disconnected_at || client.connected_at}/></dd>
        <dt>user</dt><dd>${shown(client.username) || "none"}</dd>
        <dt>address</dt><dd>${shown(client.remote_addr)} at ${shown(client.local_addr)}</dd>
        <dt>MQTT</dt><dd>${VERSIONS[client.version] ?? client.version}, keep alive ${number(client.keep_alive)} s</dd>
        <dt>session ends</dt><dd>${until}</dd>
        <dt>in flight</dt><dd>${number(client.inflight_len)} of ${number(client.max_inflight)}</dd>
        <dt>waiting</dt><dd>${number(client.queue_len)} of ${number(client.max_queue)}, ${number(client.message_dropped)} dropped</dd>
        <dt>from the client</dt><dd>${number(client.packets_received_nums)} packets, ${bytes(client.packets_received_bytes)}</dd>
        <dt>to the client</dt><dd>${number(client.packets_send_nums)} packets, ${bytes(client.packets_send_bytes)}</dd>
        ${session && html`<dt>home</dt><dd>${shown(session.home)} (${shown(session.state)})${session.short ? html` <${State} kind="warn">short of copies</${State}>` : ""}</dd>
        <dt>copies at</dt><dd>${rows(session, "keepers").map((keeper) => `${shown(keeper.node_name)}${keeper.whole ? "" : " (not whole)"}`).join(", ") || "no other node"}</dd>`}
      </dl>
      ${may.write && html`<div class="bar">
        <${Action} label="disconnect" question=${`Disconnect ${shown(id)}?`} run=${() => drop(false)} done=${reload}/>
        <${Action} label="end the session" question=${`End the session of ${shown(id)}? Its subscriptions and what waits for it are deleted.`}
          run=${() => drop(true)} done=${() => go("clients")}/></div>`}
    </section>
    <section><h2>Subscriptions</h2>
      <${Table} rows=${rows(filters, "subscriptions")} columns=${[
        ["filter", (item) => shown(item.topic_name), "name"],
        ["QoS", (item) => item.qos, "number"],
        ["no local", (item) => item.no_local ? "yes" : ""],
        ["identifier", (item) => item.id || "", "number"],
      ]}/></section>
    ${history}
    ${may.admin && html`<${Trace} of=${{client_id: id}} title="Packets"/>`}`;
}

// The packets of a client or of a topic filter as they pass: `of` has the field of StartTraceRequest.
export function Trace({of, title}) {
  const [trace, setTrace] = useState(null);
  const {data, error} = useData(trace && `/v1/${path("traces", trace)}/lines`, 1);
  const start = async () => setTrace((await call("POST", "/v1/traces", {...of, seconds: 300, log: false})).id);
  const stop = async () => { await call("DELETE", `/v1/${path("traces", trace)}`); setTrace(null); };
  const lines = rows(data, "lines").slice(-LINES_SHOWN).reverse();
  return html`<section><h2>${title}</h2>
    <div class="bar">${trace ? html`<${Action} label="stop" run=${stop}/>` : html`<${Action} label="show for 5 minutes" run=${start}/>`}
      ${trace && html`<span class="soft">${data?.ended ? "ended" : "running"}, ${number(data?.packets)} packets</span>`}</div>
    ${trace && html`<${Problem} error=${error}/><${Table} rows=${lines} empty="no packets yet" columns=${[
      ["time", (line) => line.time.slice(11, 23)],
      ["client", (line) => shown(line.client_id), "name"],
      ["direction", (line) => line.direction],
      ["packet", (line) => line.packet],
      ["fields", (line) => html`<pre>${rows(line, "fields").map((field) => `${shown(field.name)}: ${shown(field.value)}`).join("\n")}</pre>`],
    ]}/>`}</section>`;
}
