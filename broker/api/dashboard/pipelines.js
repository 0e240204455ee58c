// Pipelines: readers of the event log that hold it back, and how far behind they are.
import {html} from "/vendor/preact-htm.js";
import {NotLoaded, Problem, Since, Table, number, rows, shown, useData} from "/lib.js";

const millis = (ns) => Number(ns) ? new Date(Number(BigInt(ns) / 1000000n)).toISOString() : null;

export function Pipelines({has}) {
  const {data, error} = useData(has("event_log") && "/v1/event_log", 3);
  if (!has("event_log")) return html`<${NotLoaded} name="event_log"/>`;
  if (!data) return html`<${Problem} error=${error}/>`;
  return html`<section><h2>Queries that read the log of ${shown(data.node)}</h2>
    <${Table} rows=${rows(data, "holds")} empty="no query holds the log" columns=${[
      ["group", (hold) => shown(hold.group), "name"],
      ["query", (hold) => shown(hold.query), "name"],
      ["read up to", (hold) => number(hold.offset), "number"],
      ["behind by", (hold) => `${number(Number(data.next_offset) - Number(hold.offset))} records`, "number"],
      ["last heard", (hold) => html`<${Since} time=${millis(hold.renewed_ns)}/>`],
    ]}/>
    <p class="soft">${number(data.holds_released)} holds were released by the retention.</p></section>`;
}
