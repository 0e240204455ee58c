// Graphs of the last hour (uPlot), and the drawing of the federation.
import {html, useEffect, useRef} from "/vendor/preact-htm.js";
import {State, bytes, number, seconds, shown} from "/lib.js";

const clock = (tick) => new Date(tick * 1000).toTimeString().slice(0, 8);
// Of the ticks: those whose labels, with one digit behind the point, are exact.
const STEPS = Array.from({length: 16}, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power / 10)).flat();
const SECONDS_MIN = 30; // of a graph: for one point of time uPlot takes a day
const COLOURS = ["#2f6feb", "#d9730d", "#18794e", "#a626a4"];

// The legend has the values below the pointer, and without one the newest.
const newestValues = (drawn) => { if (drawn.cursor.idx == null && drawn.data[0].length) drawn.setLegend({idx: drawn.data[0].length - 1}); };

// lines: [label, values]. All have as many values; `newest` is an ISO time, `interval` in seconds.
export function Graph({title, lines, newest, interval, format}) {
  const place = useRef(null), chart = useRef(null);
  const count = lines[0]?.[1].length ?? 0;
  useEffect(() => {
    const style = getComputedStyle(document.documentElement);
    const axis = {stroke: style.getPropertyValue("--soft"), grid: {stroke: style.getPropertyValue("--line"), width: 1}};
    chart.current = new uPlot({
      width: place.current.clientWidth, height: 190, legend: {live: true},
      series: [{label: "time", value: (_, tick) => tick == null ? "–" : clock(tick)}, ...lines.map(([label], index) => ({
        label, stroke: COLOURS[index], width: 2, dash: index ? [6, 3 * index] : undefined,
        value: (_, value) => value == null ? "–" : format(value),
      }))],
      axes: [{...axis, space: 80, size: 34, values: (_, ticks) => ticks.map((tick) => clock(tick))}, {...axis, size: 70, incrs: STEPS, values: (_, ticks) => ticks.map((tick) => format(tick))}],
      scales: {x: {range: (drawn, low, high) => low == null ? [low, high] : [low, Math.min(high, Math.max(drawn.data[0].at(-1), low + SECONDS_MIN))]},
        y: {range: (_, low, high) => [0, Math.max(high || 0, 1) * 1.1]}},
      hooks: {setData: [newestValues], setCursor: [newestValues]},
    }, [[], ...lines.map(() => [])], place.current);
    const fit = new ResizeObserver(() => chart.current?.setSize({width: place.current.clientWidth, height: 190}));
    fit.observe(place.current);
    return () => { fit.disconnect(); chart.current.destroy(); chart.current = null; };
  }, [lines.length]);
  useEffect(() => {
    const end = Date.parse(newest) / 1000 || 0;
    const times = Array.from({length: count}, (_, index) => end - (count - 1 - index) * interval);
    chart.current?.setData([times, ...lines.map(([, values]) => values)]);
  }, [newest, count]);
  const last = lines.map(([label, values]) => `${label} ${values.length ? format(values.at(-1)) : "–"}`).join(", ");
  return html`<section><h2>${title}</h2>
    <div class="chart" role="img" aria-label=${`${title} over the last hour; now: ${last}`} ref=${place}></div></section>`;
}

const KINDS = {STATUS_ALIVE: "good", STATUS_LEAVING: "warn", STATUS_LEFT: "off", STATUS_FAILED: "bad"};
const isDraining = (member) => member.status === "STATUS_ALIVE" && "draining" in (member.tags ?? {});
export const memberKind = (member) => member.suspected || isDraining(member) ? "warn" : KINDS[member.status] ?? "off";
export const memberWord = (member) =>
  member.suspected ? "suspected" : isDraining(member) ? "draining" : String(member.status || "").replace("STATUS_", "").toLowerCase();

// One entry for each node: its name, its members, and the worst of their states. Workers of a node are members of their own.
const RANKS = ["off", "good", "warn", "bad"];
export function nodesOf(members) {
  const found = new globalThis.Map();
  for (const member of members) {
    const name = member.node_name || member.name;
    found.set(name, [...(found.get(name) ?? []), member]);
  }
  return [...found].map(([name, all]) => {
    const worst = all.reduce((one, other) => RANKS.indexOf(memberKind(other)) > RANKS.indexOf(memberKind(one)) ? other : one);
    const alive = all.filter((member) => memberWord(member) === "alive").length;
    const word = new Set(all.map(memberWord)).size === 1 ? memberWord(worst) : `${alive} of ${all.length} workers alive`;
    return {name, members: all, workers: all.length, worst, word};
  });
}

// What this node is joined with: other nodes by their streams, upstreams by their links; the worst first where not all are shown.
const DRAWN = {nodes: 8, upstreams: 5}, LISTED = 60, LETTERS = 24;
// Of several together; a rate is known when the node was asked twice.
function rateOf(rates, format) {
  const known = rates.filter((rate) => rate !== undefined);
  return known.length ? `${format(known.reduce((total, rate) => total + rate, 0))}/s` : "…";
}

function edgesOf({own, nodes, peers, links, flow, linked}) {
  const byName = Object.fromEntries(peers.map((peer) => [peer.node_name, peer]));
  const toNodes = nodes.filter((node) => node.name !== own).map((node) => {
    const streams = node.members.map((member) => byName[member.name]).filter(Boolean);
    const peer = streams.find((one) => one.state !== "streaming") ?? streams.find((one) => one.behind) ?? streams[0];
    const flows = peer?.state === "streaming";
    const lag = peer?.outbox_seconds > 1 ? `, ${seconds(peer.outbox_seconds)} behind` : "";
    const kept = Number(peer?.stored_bytes) ? `, ${bytes(peer.stored_bytes)} kept for it` : "";
    const rate = rateOf(node.members.map((member) => flow[member.name]), bytes);
    return {name: node.name, kind: memberKind(node.worst), state: `${node.word}${node.workers > 1 ? `, ${node.workers} workers` : ""}`,
      line: flows ? "flows" : peer && "broken", text: !peer ? "" : flows ? `${rate}${lag}${kept}` : `${peer.state}${kept}`};
  });
  const toUpstreams = [...new Set(links.map((link) => link.upstream))].map((name) => {
    const mine = links.filter((link) => link.upstream === name), all = (status) => mine.every((link) => link.status === status);
    const rate = rateOf(mine.map((link) => linked[`${link.id} ${link.node}`]), (figure) => `${number(figure)} messages`);
    const lag = Math.max(0, ...mine.map((link) => link.lag_seconds ?? 0));
    const state = [...new Set(mine.map((link) => link.status))].join(", ");
    const line = all("running") ? "flows" : all("idle") ? "" : "broken";
    return {name, kind: {flows: "good", "": "off", broken: "bad"}[line], state, line, text: `${rate}${lag > 1 ? `, ${seconds(lag)} behind` : ""}`};
  });
  return [toNodes, toUpstreams].map((edges) => edges.sort((one, other) => RANKS.indexOf(other.kind) - RANKS.indexOf(one.kind)));
}

// A picture of few, and on wide screens; else a list with the same lines.
export function Map(props) {
  const [nodes, upstreams] = edgesOf(props), own = shown(props.own || "this node");
  const isDrawn = nodes.length <= DRAWN.nodes && upstreams.length <= DRAWN.upstreams;
  const hidden = Math.max(0, nodes.length - LISTED) + Math.max(0, upstreams.length - LISTED);
  const branch = (edge, what) => html`<li class=${edge.line}><${State} kind=${edge.kind}>${what}${shown(edge.name)}</${State}>
    <span class="soft">${[edge.state, edge.text].filter(Boolean).join(", ")}</span></li>`;
  return html`${isDrawn && html`<${Picture} own=${own} nodes=${nodes} upstreams=${upstreams}/>`}
    <div class=${`branches ${isDrawn ? "narrow" : ""}`}><b>${own}</b><ul>
      ${nodes.slice(0, LISTED).map((edge) => branch(edge, ""))}${upstreams.slice(0, LISTED).map((edge) => branch(edge, "link to "))}
      ${hidden > 0 && html`<li class="soft">and ${hidden} more</li>`}</ul></div>`;
}

function short(name) {
  const text = shown(name);
  return text.length > LETTERS ? html`${text.slice(0, LETTERS - 1)}…<title>${text}</title>` : text;
}

// The nodes around this one, and the upstreams below.
function Picture({own, nodes, upstreams}) {
  const ordered = [...nodes].sort((one, other) => one.name < other.name ? -1 : 1), isFlat = nodes.length <= 2, cy = isFlat ? 60 : 150;
  const width = 900, height = cy * 2 + (upstreams.length ? 80 : 0), cx = width / 2;
  const at = (index, count) => {
    const angle = Math.PI * 2 * index / count - Math.PI / 2;
    return [cx + Math.cos(angle) * 330, cy + Math.sin(angle) * 105];
  };
  const points = isFlat ? [[cx + 330, cy], [cx - 330, cy]] : ordered.map((_, index) => at(index + .5, ordered.length));
  return html`<svg class="map" viewBox="0 0 ${width} ${height}" role="img"
      aria-label=${`${nodes.length + 1} nodes and ${upstreams.length} upstreams; the tables below have the same`}>
    ${ordered.map((edge, index) => {
      const [x, y] = points[index];
      return html`<g><line class=${edge.line} x1=${cx} y1=${cy} x2=${x} y2=${y}/>
        <text class="small" x=${(cx * 1.1 + x * .9) / 2} y=${(cy + y) / 2 - 5}>${edge.text}</text></g>`;
    })}
    ${upstreams.map((edge, index) => {
      const x = width * (index + 1) / (upstreams.length + 1);
      return html`<g><line class=${edge.line} x1=${cx} y1=${cy} x2=${x} y2=${height - 60}/>
        <rect x=${x - 70} y=${height - 60} width="140" height="34" rx="6" stroke="currentColor"/>
        <text x=${x} y=${height - 38}>${short(edge.name)}</text>
        <text class="small" x=${x} y=${height - 10}>${edge.state}, ${edge.text}</text></g>`;
    })}
    ${ordered.map((edge, index) => {
      const [x, y] = points[index];
      return html`<g><circle cx=${x} cy=${y} r="15" stroke="var(--${edge.kind}, var(--soft))"/>
        <text x=${x} y=${y + 33}>${short(edge.name)}</text>
        <text class="small" x=${x} y=${y + 47}>${edge.state}</text></g>`;
    })}
    <circle cx=${cx} cy=${cy} r="20" stroke="var(--accent)"/>
    <text x=${cx} y=${cy - 29}>${short(own)}</text>
  </svg>`;
}
