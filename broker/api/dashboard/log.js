// Log: the event log of the node, and those who read it.
import {html} from "/vendor/preact-htm.js";
import {NotLoaded, Problem, Since, State, Table, bytes, number, rows, shown, useData} from "/lib.js";

const time = (ns) => Number(ns) ? new Date(Number(BigInt(ns) / 1000000n)).toISOString() : null;

export function Log({has}) {
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
    <section><h2>Logs of other nodes</h2><${Table} rows=${rows(data, "members")} columns=${[
      ["node", (member) => shown(member.node), "name"],
      ["member is", (member) => shown(member.status).toLowerCase()],
      ["API", (member) => shown(member.api_addr)],
    ]}/></section>`;
}
