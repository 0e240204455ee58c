// Graphs of the last hour (uPlot), and the drawing of the federation.
import {html, useEffect, useRef} from "/vendor/preact-htm.js";
import {bytes, number, seconds, shown} from "/lib.js";

const clock = (tick) => new Date(tick * 1000).toTimeString().slice(0, 8);
// Of the ticks: those whose labels, with one digit behind the point, are exact.
const STEPS = Array.from({length: 16}, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power / 10)).flat();
const SECONDS_MIN = 30; // of a graph: for one point of time uPlot takes a day
const COLOURS = ["#2f6feb", "#d9730d", "#18794e", "#a626a4"];

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
export const memberKind = (member) => member.suspected ? "warn" : KINDS[member.status] ?? "off";
export const memberWord = (member) =>
  member.suspected ? "suspected" : String(member.status || "").replace("STATUS_", "").toLowerCase();

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

// The nodes around this one, and other domains below. With more than NODES_DRAWN the rest is a number.
const NODES_DRAWN = 24;
export function Map({own, nodes, peers, links, flow, linked}) {
  const others = nodes.filter((node) => node.name !== own).slice(0, NODES_DRAWN);
  const hidden = nodes.length - others.length - 1;
  const byName = Object.fromEntries(peers.map((peer) => [peer.node_name, peer]));
  const domains = [...new Set(links.map((link) => link.upstream))].slice(0, 8);
  const isFlat = others.length <= 2, cy = isFlat ? 60 : 150;
  const width = 900, height = cy * 2 + (domains.length ? 80 : 0), cx = width / 2;
  const at = (index, count) => {
    const angle = Math.PI * 2 * index / count - Math.PI / 2;
    return [cx + Math.cos(angle) * (count > 1 ? 330 : 250), cy + Math.sin(angle) * 105];
  };
  const told = (mine) => {
    const rate = mine.reduce((total, link) => total + (linked[`${link.id} ${link.node}`] ?? 0), 0);
    const lag = Math.max(0, ...mine.map((link) => link.lag_seconds ?? 0));
    return `, ${number(rate)} messages/s${lag > 1 ? `, ${seconds(lag)} behind` : ""}`;
  };
  const points = isFlat ? [[cx + 330, cy], [cx - 330, cy]] : others.map((_, index) => at(index + .5, others.length));
  return html`<svg class="map" viewBox="0 0 ${width} ${height}" role="img"
      aria-label=${`${nodes.length} nodes and ${domains.length} upstreams; the tables below have the same`}>
    ${others.map((node, index) => {
      const [x, y] = points[index], streams = node.members.map((member) => byName[member.name]).filter(Boolean);
      const peer = streams.find((one) => one.state !== "streaming") ?? streams.find((one) => one.behind) ?? streams[0];
      const flows = peer?.state === "streaming";
      const lag = peer?.outbox_seconds > 1 ? `, ${seconds(peer.outbox_seconds)} behind` : "";
      const kept = Number(peer?.stored_bytes) ? `, ${bytes(peer.stored_bytes)} kept for it` : "";
      const text = !peer ? "" : !flows ? `${peer.state}${kept}`
        : `${bytes(node.members.reduce((total, member) => total + (flow[member.name] ?? 0), 0))}/s${lag}${kept}`;
      return html`<g><line class=${flows ? "flows" : "broken"} x1=${cx} y1=${cy} x2=${x} y2=${y}/>
        <text class="small" x=${(cx * 1.1 + x * .9) / 2} y=${(cy + y) / 2 - 5}>${text}</text></g>`;
    })}
    ${domains.map((name, index) => {
      const x = width * (index + 1) / (domains.length + 1), mine = links.filter((link) => link.upstream === name);
      const kind = mine.every((link) => link.status === "running") ? "flows" : mine.every((link) => link.status === "idle") ? "" : "broken";
      return html`<g><line class=${kind} x1=${cx} y1=${cy} x2=${x} y2=${height - 60}/>
        <rect x=${x - 60} y=${height - 60} width="120" height="34" rx="6" fill="none" stroke="currentColor"/>
        <text x=${x} y=${height - 38}>${shown(name)}</text>
        <text class="small" x=${x} y=${height - 10}>${mine.map((link) => link.status).join(", ")}${told(mine)}</text></g>`;
    })}
    ${others.map((node, index) => {
      const [x, y] = points[index];
      return html`<g><circle cx=${x} cy=${y} r="15" stroke="var(--${memberKind(node.worst)}, var(--soft))"/>
        <text x=${x} y=${y + 33}>${shown(node.name)}</text>
        <text class="small" x=${x} y=${y + 47}>${node.word}${node.workers > 1 ? `, ${node.workers} workers` : ""}</text></g>`;
    })}
    <circle cx=${cx} cy=${cy} r="20" stroke="var(--accent)"/>
    <text x=${cx} y=${cy - 29}>${shown(own || "this node")}</text>
    ${hidden > 0 && html`<text class="small" x=${width - 90} y="20">and ${hidden} more</text>`}
  </svg>`;
}
