// Topics: who is subscribed, messages as they pass, publish.
import {html, useState} from "/vendor/preact-htm.js";
import {Problem, Table, call, go, path, query, rows, shown, useData} from "/lib.js";
import {Trace} from "/clients.js";

const FILTER_MATCHES = 2, NAME_EQUALS = 1, MOST = 1000;

export function Topics({fields, may}) {
  const topic = fields.topic ?? "";
  const asked = topic
    ? `/v1/filter_subscriptions${query({topic_name: topic, match_type: /[#+]/.test(topic) ? NAME_EQUALS : FILTER_MATCHES, limit: MOST})}`
    : `/v1/subscriptions${query({page_size: MOST})}`;
  const {data, error} = useData(asked, 5);
  const search = (event) => {
    event.preventDefault();
    go("topics", [], {topic: new FormData(event.target).get("topic")});
  };
  const groups = {};
  for (const item of rows(data, "subscriptions")) (groups[item.topic_name] ??= []).push(item);
  const found = Object.entries(groups).sort(([one], [other]) => one < other ? -1 : 1).map(([filter, items]) => ({filter, items}));
  return html`
    <form class="bar" onSubmit=${search} role="search">
      <label>topic, or topic filter <input name="topic" defaultValue=${topic} size="40"/></label>
      <button class="main">who is subscribed?</button>
    </form>
    <${Problem} error=${error}/>
    <section><h2>${topic ? `Subscriptions of this node for ${shown(topic)}` : "Subscriptions of this node"}</h2>
      <${Table} rows=${found.slice(0, 200)} columns=${[
        ["filter", ({filter}) => shown(filter), "name"],
        ["QoS", ({items}) => [...new Set(items.map((item) => item.qos))].sort().join(", "), "number"],
        ["clients", ({items}) => html`${items.slice(0, 8).map((item) => html`<a href=${`#/${path("clients", item.client_id)}`}>${shown(item.client_id)}</a> `)}
          ${items.length > 8 ? `and ${items.length - 8} more` : ""}`],
      ]}/></section>
    ${may.admin && topic && html`<${Trace} key=${topic} of=${{topic_filter: topic}} title=${`Messages as they pass: ${shown(topic)}`}/>`}
    ${may.write && html`<${Publish} topic=${/[#+]/.test(topic) ? "" : topic}/>`}`;
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
    <label>QoS <select name="qos"><option>0</option><option>1</option><option>2</option></select></label>
    <label>payload <textarea name="payload"></textarea></label>
    <label>retained <input type="checkbox" name="retained"/></label>
    <button class="main">publish</button></form>${told}</section>`;
}
