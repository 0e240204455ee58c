// Pipelines: readers that hold the event logs of all nodes, how far behind they are, and the last batches that were published.
import {html} from "/vendor/preact-htm.js";
import {NotLoaded, Problem, Since, State, Table, number, rows, shown} from "/lib.js";
import {Holds, time, useLogs} from "/log.js";

// By query: the nodes that it reads, the records that it has before it in all of them, when it was heard of last.
function queries(logs) {
  const found = {};
  for (const log of logs) {
    for (const hold of rows(log, "holds")) {
      const one = found[JSON.stringify([hold.group, hold.query])] ??= {group: hold.group, query: hold.query, nodes: 0, read: 0, behind: 0, heard: 0};
      one.nodes += 1;
      one.read += Number(hold.offset) - Number(log.first_offset);
      one.behind += Number(log.next_offset) - Number(hold.offset);
      one.heard = Math.max(one.heard, Number(hold.held_at_ns));
    }
  }
  return Object.values(found);
}

export function Pipelines({has}) {
  const {own, logs, error, faults} = useLogs(has("event_log"));
  if (!has("event_log")) return html`<${NotLoaded} name="event_log"/>`;
  if (!own) return html`<${Problem} error=${error}/>`;
  const batches = logs.flatMap((log) => rows(log, "batches").map((batch) => ({...batch, node: log.node})));
  return html`
    <section><h2>Queries</h2><${Table} rows=${queries(logs)} empty="no query reads the logs" columns=${[
      ["group", (one) => shown(one.group), "name"],
      ["query", (one) => shown(one.query), "name"],
      ["nodes", (one) => `${one.nodes} of ${logs.length}`, "number"],
      ["progress", (one) => html`<progress max=${Math.max(1, one.read + one.behind)} value=${one.read} aria-label="what is kept and read"></progress>`],
      ["behind by", (one) => `${number(one.behind)} records`, "number"],
      ["last heard", (one) => html`<${Since} time=${one.heard ? new Date(one.heard / 1e6).toISOString() : null}/>`],
    ]}/>
    ${faults.map(([node, fault]) => html`<p><${State} kind="warn">${shown(node)}: ${shown(fault.message)}</${State}></p>`)}</section>
    <section><h2>At each node</h2><${Holds} logs=${logs}/>
      <p class="soft">${number(logs.reduce((total, log) => total + Number(log.holds_released), 0))} holds were released by the retention.</p></section>
    <section><h2>Last batches that were published</h2><${Table} rows=${batches} empty="none since the start of the nodes" columns=${[
      ["query", (batch) => shown(batch.query), "name"],
      ["node", (batch) => shown(batch.node), "name"],
      ["batch", (batch) => number(batch.batch), "number"],
      ["rows", (batch) => Number(batch.committed_at_ns) ? number(batch.rows) : "", "number"],
      ["committed", (batch) => Number(batch.committed_at_ns) ? html`<${Since} time=${time(batch.committed_at_ns)}/>` : html`<${State} kind="warn">goes on</${State}>`],
    ]}/></section>`;
}
