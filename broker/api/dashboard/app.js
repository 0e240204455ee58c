// The page: login, views by address, what is said while the node does not answer.
import {html, render, useEffect, useRef, useState} from "/vendor/preact-htm.js";
import {Problem, call, here, rows, shown, useData, watchers} from "/lib.js";
import {Access} from "/access.js";
import {Clients} from "/clients.js";
import {Links} from "/links.js";
import {Log} from "/log.js";
import {Overview} from "/overview.js";
import {Pipelines} from "/pipelines.js";
import {Topics} from "/topics.js";

const VIEWS = {overview: ["Overview", Overview], clients: ["Clients", Clients], topics: ["Topics", Topics], log: ["Log", Log],
  links: ["Links", Links], pipelines: ["Pipelines", Pipelines], access: ["Access", Access]};
const ROLES = ["read", "write", "admin"];

function Page() {
  const [who, setWho] = useState(null);
  const [place, setPlace] = useState(here());
  const [silent, setSilent] = useState("");
  const [late, setLate] = useState(0);
  const began = useRef(null);
  const ask = async () => {
    try { setWho(await call("GET", "/login")); } catch (error) { setSilent(error.message); setTimeout(ask, 2000); }
  };
  useEffect(() => {
    watchers.failed = setSilent;
    watchers.answered = () => setSilent("");
    watchers.refused = ask;
    watchers.slow = (change) => setLate((count) => count + change);
    const moved = () => setPlace(here());
    addEventListener("hashchange", moved);
    ask();
    return () => removeEventListener("hashchange", moved);
  }, []);
  const node = useData(who && !(who.needed && !who.role) && "/v1/node", 10).data;
  useEffect(() => { document.title = node?.node_name ? `${node.node_name} · gmqttd` : "gmqttd"; }, [node?.node_name]);
  began.current ??= node?.version;
  const isOld = node && began.current !== node.version;
  const banner = silent ? html`<div class="banner" role="alert">The node does not answer (${shown(silent)}). What is shown is older; asking again …</div>`
    : late > 0 ? html`<div class="banner" role="status">The node answers slowly. What is shown may be older.</div>`
    : isOld ? html`<div class="banner" role="status">The node runs version ${node.version} now: <a href=${location.href} onClick=${() => location.reload()}>load this page again</a></div>`
    : null;
  if (who?.needed && !who.role) return html`${banner}<${Login} done=${ask}/>`;
  if (!node) return banner || html`<p class="soft">asking the node …</p>`;
  const has = (plugin) => rows(node, "plugins").includes(plugin);
  const rank = ROLES.indexOf(who.role), may = {write: rank >= 1, admin: rank >= 2};
  const name = VIEWS[place.view] ? place.view : "overview", [, View] = VIEWS[name];
  return html`
    <header><h1><img src="/icon.svg" alt=""/>${shown(node.node_name) || "gmqttd"} ${node.version}</h1>
      <nav aria-label="views">${Object.entries(VIEWS).map(([key, [title]]) =>
        html`<a href=${`#/${key}`} aria-current=${key === name ? "page" : undefined}>${title}</a>`)}</nav>
      <div class="end"><a href="/docs">API</a>${who.needed && html`<${Logout} done=${ask}/>`}</div></header>
    ${banner}
    <main><${View} key=${name} parts=${place.parts} fields=${place.fields} may=${may} who=${who} has=${has}/></main>`;
}

function Login({done}) {
  const [error, setError] = useState(null);
  const send = async (event) => {
    event.preventDefault();
    try {
      await call("POST", "/login", {token: new FormData(event.target).get("token").trim()});
      done();
    } catch (found) { setError(found); }
  };
  return html`<main><section><h2>Login</h2><p>This node asks for a token of its API: gmqttd token create --role read</p>
    <form class="bar" onSubmit=${send}><label>token <input name="token" type="password" required autofocus autocomplete="current-password" size="40"/></label>
    <button class="main">log in</button></form><${Problem} error=${error}/></section></main>`;
}

function Logout({done}) {
  const leave = async () => { await call("POST", "/logout"); done(); };
  return html`<button onClick=${leave}>log out</button>`;
}

render(html`<${Page}/>`, document.getElementById("page"));
