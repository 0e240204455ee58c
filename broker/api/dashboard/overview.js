// Overview: the node, its federation, what is wrong, the last hour.
import {html} from "/vendor/preact-htm.js";
import {Problem, Since, State, Table, bytes, number, rows, seconds, shown, useData, useRates, useStream} from "/lib.js";
import {Graph, Map, memberKind, nodesOf} from "/charts.js";

const EVENTS_SHOWN = 30;
const Card = ({name, value}) => html`<div class="card"><b>${value}</b><span>${name}</span></div>`;
const sum = (values) => (values ?? []).reduce((total, value) => total + Number(value), 0);

const KINDS = {error: "bad", warn: "warn", info: "off"};
const AT_LEVEL = /^\d\S+Z +\w+ +/; // of a line, which columns beside it have

export function Overview({has}) {
  const [events] = useStream("/v1/events", EVENTS_SHOWN);
  const node = useData("/v1/node").data, alarms = useData("/v1/alarms"), rates = useData("/v1/rates", 10).data;
  const members = rows(useData(has("federation") && "/v1/federation/members").data, "members");
  const peers = rows(useData(has("federation") && "/v1/federation/peers").data, "peers");
  const links = rows(useData(has("links") && "/v1/federation-links", 5).data, "links");
  const flow = useRates(peers, (peer) => peer.node_name, (peer) => Number(peer.bytes_sent) + Number(peer.bytes_received));
  const linked = useRates(links, (link) => `${link.id} ${link.node}`, (link) => Number(link.sent ?? 0) + Number(link.received ?? 0));
  if (!node) return html`<p class="soft">asking the node …</p>`;
  const wrong = rows(alarms.data, "alarms");
  const series = Object.fromEntries((rates?.series ?? []).map((item) => [item.name, item.values ?? []]));
  const graph = (title, names, format) => html`<${Graph} key=${title} title=${title} format=${format}
    newest=${rates?.newest} interval=${rates?.interval_seconds ?? 10} lines=${names.map(([label, name]) => [label, series[name] ?? []])}/>`;
  return html`
    <div class="cards">
      <${Card} name="clients connected" value=${number(node.clients_connected)}/>
      <${Card} name="sessions" value=${number(node.sessions)}/>
      <${Card} name="subscriptions" value=${number(node.subscriptions)}/>
      <${Card} name="retained messages" value=${number(node.retained_messages)}/>
      <${Card} name="messages that wait" value=${number(node.messages_waiting)}/>
      <${Card} name="dropped since the start" value=${number(sum(Object.values(node.dropped ?? {})))}/>
      <${Card} name="up" value=${seconds(node.uptime_seconds)}/>
    </div>
    <section aria-live="polite"><h2>Alarms</h2><${Problem} error=${alarms.error}/>
      ${wrong.length > 0 && html`<ul class="tree">${wrong.map((alarm) => html`<li><${State} kind=${KINDS[alarm.level]}>${shown(alarm.text)}</${State}></li>`)}</ul>`}
      ${alarms.data && !wrong.length && html`<${State} kind="good">nothing is wrong</${State}>`}
    </section>
    ${members.length > 0 && html`<section><h2>Federation</h2>
      <${Map} own=${node.node_name} nodes=${nodesOf(members)} peers=${peers} links=${links} flow=${flow} linked=${linked}/>
      <${Table} rows=${nodesOf(members)} columns=${[
        ["node", (found) => shown(found.name), "name"],
        ["workers", (found) => found.workers > 1 ? number(found.workers) : "", "number"],
        ["status", (found) => html`<${State} kind=${memberKind(found.worst)}>${found.word}</${State}>`],
        ["since", (found) => html`<${Since} time=${found.worst.since}/>`],
        ["address", (found) => shown(found.members[0].addr)],
        ["zone", (found) => shown(found.members[0].zone)],
        ["round trip", (found) => found.members[0].round_trip_seconds == null ? "" : seconds(found.members[0].round_trip_seconds), "number"],
      ]}/>
    </section>`}
    ${peers.length > 0 && html`<section><h2>Streams to other nodes</h2>
      <${Table} rows=${peers} columns=${[
        ["node", (peer) => shown(peer.node_name), "name"],
        ["state", (peer) => html`<${State} kind=${peer.state === "streaming" ? (peer.behind ? "warn" : "good") : "bad"}>${peer.state}${peer.behind ? ", behind" : ""}</${State}>`],
        ["stream", (peer) => `${peer.stream}${peer.tls ? ", TLS" : ""}`],
        ["sent", (peer) => bytes(peer.bytes_sent), "number"],
        ["received", (peer) => bytes(peer.bytes_received), "number"],
        ["waiting", (peer) => bytes(Number(peer.outbox_bytes) + Number(peer.stored_bytes)), "number"],
        ["oldest", (peer) => peer.outbox_seconds ? seconds(peer.outbox_seconds) : "", "number"],
        ["dropped", (peer) => number(sum(Object.values(peer.dropped ?? {}))), "number"],
        ["round trip", (peer) => peer.round_trip_seconds == null ? "" : seconds(peer.round_trip_seconds), "number"],
        ["retained equal", (peer) => peer.retained_equal == null ? "" : peer.retained_equal ? "yes" : "no"],
      ]}/>
    </section>`}
    <div class="split graphs">
      ${graph("Messages a second", [["received", "messages_received"], ["sent", "messages_sent"], ["dropped", "messages_dropped"]], number)}
      ${graph("Bytes a second", [["received", "bytes_received"], ["sent", "bytes_sent"]], bytes)}
      ${graph("Clients", [["connected", "clients"], ["sessions", "sessions"]], number)}
      ${graph("Messages that wait for clients", [["waiting", "messages_waiting"]], number)}
    </div>
    <section><h2>Events since this page was opened</h2><${Table} rows=${events} empty="none yet" columns=${[
      ["time", (event) => String(event.time).slice(11, 19)],
      ["level", (event) => html`<${State} kind=${KINDS[event.level] ?? "off"}>${event.level}</${State}>`],
      ["line", (event) => html`<pre>${shown(event.line.replace(AT_LEVEL, ""))}</pre>`],
    ]}/></section>`;
}
