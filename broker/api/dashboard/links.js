// Links to other clusters and brokers: state with its evidence, restart, policies and what they mean for a topic, queues.
import {html, useState} from "/vendor/preact-htm.js";
import {Action, NotLoaded, Problem, Since, State, Table, bytes, call, number, path, query, rows, seconds, shown, useData} from "/lib.js";

const KINDS = {running: "good", idle: "good", starting: "warn", paused: "warn", draining: "warn", blocked: "bad", error: "bad",
  invalid: "bad", shutdown: "off"};
const dropped = (map) => Object.entries(map ?? {}).map(([reason, count]) => `${number(count)} ${reason}`).join(", ");

export function Links({parts, may, has}) {
  const {data, error, reload} = useData(has("links") && "/v1/federation-links", 2);
  const policies = rows(useData(has("links") && "/v1/policies", 10).data, "policies");
  const queues = rows(useData(has("links") && "/v1/group-queues", 3).data, "queues");
  if (!has("links")) return html`<${NotLoaded} name="links"/>`;
  const links = rows(data, "links"), chosen = links.find((link) => link.id === parts[0]);
  return html`<${Problem} error=${error}/>
    ${rows(data, "unanswered").length > 0 && html`<p><${State} kind="warn">no answer from ${shown(data.unanswered.join(", "))}: their links are missing</${State}></p>`}
    <section><h2>Links</h2><${Table} rows=${links} empty="no policy makes a link" to=${(link) => `#/${path("links", link.id)}`} columns=${[
      ["upstream", (link) => shown(link.upstream), "name"],
      ["direction", (link) => `${link.type}, ${link.direction}`],
      ["status", (link) => html`<${State} kind=${KINDS[link.status] ?? "off"}>${link.status}</${State}>`],
      ["since", (link) => html`<${Since} time=${link.since}/>`],
      ["node", (link) => shown(link.node)],
      ["received", (link) => number(link.received), "number"],
      ["sent", (link) => number(link.sent), "number"],
      ["waiting", (link) => link.waiting == null ? "" : number(link.waiting), "number"],
      ["lag", (link) => link.lag_seconds == null ? "" : seconds(link.lag_seconds), "number"],
      ["error", (link) => link.error ? html`<span class="error">${shown(link.error)}</span>` : ""],
    ]}/></section>
    ${chosen && html`<section><h2>${shown(chosen.upstream)}: evidence</h2><dl>
      <dt>status</dt><dd>${chosen.status}: ${shown(chosen.next_step)}</dd>
      <dt>address</dt><dd>${shown(chosen.uri)}</dd>
      <dt>client id there</dt><dd>${shown(chosen.upstream_name)}</dd>
      <dt>policies</dt><dd>${rows(chosen, "policies").map((policy) => `${shown(policy.name)} (${shown(policy.pattern)})`).join(", ")}</dd>
      <dt>topics</dt><dd>${shown(chosen.mapping) || "the same here and there"}</dd>
      <dt>last answer</dt><dd><${Since} time=${chosen.answered}/>${chosen.round_trip_seconds == null ? "" : `, round trip ${seconds(chosen.round_trip_seconds)}`}</dd>
      <dt>last error</dt><dd class="error">${shown(chosen.error)} <${Since} time=${chosen.error_at}/></dd>
      <dt>in flight</dt><dd>${number(chosen.in_flight)}</dd>
      <dt>dropped</dt><dd>${dropped(chosen.dropped) || "none"}</dd>
      <dt>reconnects</dt><dd>${number(chosen.reconnects)}; ${number(chosen.sessions_lost)} sessions lost at the upstream</dd>
      <dt>notes</dt><dd>${rows(chosen, "notes").map(shown).join("; ") || "none"}</dd></dl>
      ${may.write && html`<p><${Action} label="connect anew" run=${() => call("POST", `/v1/${path("federation-links", chosen.id)}/restart`, {})} done=${reload}/></p>`}
    </section>`}
    <section><h2>Policies</h2><${Explain}/><${Table} rows=${policies} columns=${[
      ["name", (policy) => shown(policy.name), "name"],
      ["pattern", (policy) => shown(policy.pattern), "name"],
      ["applies to", (policy) => shown(policy["apply-to"] ?? policy.apply_to)],
      ["priority", (policy) => number(policy.priority), "number"],
      ["definition", (policy) => html`<pre>${shown(JSON.stringify(policy.definition ?? {}))}</pre>`],
    ]}/></section>
    <section><h2>Queues of shared groups</h2><${Table} rows=${queues} columns=${[
      ["group", (queue) => shown(queue.group), "name"],
      ["policy", (queue) => shown(queue.policy)],
      ["messages", (queue) => `${number(queue.messages)} of ${number(queue.max_length)}`, "number"],
      ["size", (queue) => bytes(queue.bytes), "number"],
      ["oldest", (queue) => queue.oldest_seconds == null ? "" : seconds(queue.oldest_seconds), "number"],
      ["members", (queue) => number(queue.members), "number"],
      ["dropped", (queue) => number(queue.dropped), "number"],
    ]}/></section>`;
}

function Explain() {
  const [topic, setTopic] = useState(null);
  const {data, error} = useData(topic && `/v1/policy-of-topic${query({topic})}`, 30);
  const ask = (event) => { event.preventDefault(); setTopic(new FormData(event.target).get("topic")); };
  return html`<form class="bar" onSubmit=${ask}><label>which policy has this topic? <input name="topic" required/></label>
    <button>explain</button></form>
    ${topic && html`<${Problem} error=${error}/>${data && html`<pre>${shown(JSON.stringify(data, null, 1)).replaceAll("\\u000a", "\n")}</pre>`}`}`;
}
