// Access: the role of this browser, accounts, tokens of the API, rules and their tester, who is locked out.
import {html, useState} from "/vendor/preact-htm.js";
import {Verdict} from "/topics.js";
import {Action, PAGE_ROWS, Pages, Problem, Table, call, go, path, query, rows, seconds, shown, useData} from "/lib.js";

const DAY_SECONDS = 86400;

export function Access({fields, may, who, has}) {
  const needed = html`<p class="soft">The plugin auth does not run: every client is let in.</p>`;
  return html`
    <section><h2>This browser</h2><p>${who.needed ? `logged in with the token ${shown(who.name)}, role ${who.role}` :
      "no login is needed at this address: whoever reaches it may do everything"}</p></section>
    <${Tester}/>
    <section><h2>Accounts of clients</h2>${has("auth") ? may.admin && html`<${Accounts} page=${Number(fields.page) || 1}/>` : needed}</section>
    ${has("auth") && may.admin && html`<${LockedOut}/><${Rules} page=${Number(fields.rules) || 1}/>`}
    ${may.admin && who.needed && html`<${Tokens}/>`}
    ${!may.admin && html`<p class="soft">Accounts, rules and tokens are shown to the role admin.</p>`}`;
}

function Accounts({page}) {
  const {data, error, reload} = useData(`/v1/accounts${query({page_size: PAGE_ROWS, page})}`, 10);
  if (error?.status === 404) return html`<p class="soft">There is no password_file.</p>`;
  return html`<${Problem} error=${error}/>
    ${data && html`<${Table} rows=${rows(data, "accounts")} columns=${[
      ["user", (account) => shown(account.username), "name"],
      ["role", (account) => shown(account.role)],
      ["action", (account) => html`<${Action} label="delete" question=${`Delete the account ${shown(account.username)}?`}
        run=${() => call("DELETE", `/v1/${path("accounts", account.username)}`)} done=${reload}/>`],
    ]}/><${Pages} page=${page} total=${data.total_count ?? 0} go=${(next) => go("access", [], {page: next})}/>
    <${NewAccount} done=${reload}/>`}`;
}

function LockedOut() {
  const {data, error} = useData("/v1/locked_out", 3);
  return html`<section><h2>Locked out by failed logins</h2><${Problem} error=${error}/>
    ${data && html`<${Table} rows=${rows(data, "locked_out").slice(0, PAGE_ROWS)} empty="nobody" columns=${[
      ["address", (one) => shown(one.address)],
      ["user", (one) => shown(one.username) || "all, but those that have logged in from there", "name"],
      ["for", (one) => seconds(one.seconds), "number"],
    ]}/>`}</section>`;
}

function Rules({page}) {
  const {data, error} = useData(`/v1/rules${query({page_size: PAGE_ROWS, page})}`, 10);
  return html`<section><h2>Rules of the acl_file</h2><${Problem} error=${error}/>
    ${data && html`<${Table} rows=${rows(data, "rules")} empty="there is no acl_file: clients may publish and read everything" columns=${[
      ["of", (rule) => rule.kind === "pattern" ? "all clients" : shown(rule.username) || "clients without a user name", "name"],
      ["access", (rule) => rule.access],
      ["topic filter", (rule) => shown(rule.topic_filter), "name"],
    ]}/>${data.total_count > PAGE_ROWS && html`<${Pages} page=${page} total=${data.total_count} go=${(next) => go("access", [], {rules: next})}/>`}`}</section>`;
}

function Tokens() {
  const {data, error, reload} = useData("/v1/tokens", 10);
  const [made, setMade] = useState(null);
  const create = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    try {
      const {token} = await call("POST", "/v1/tokens", {role: form.get("role"), name: form.get("name"),
        expires_seconds: Number(form.get("days")) * DAY_SECONDS});
      setMade(html`<p role="status">The token is shown this once: <code>${token}</code></p>`);
      event.target.reset();
      reload();
    } catch (fault) { setMade(html`<${Problem} error=${fault}/>`); }
  };
  return html`<section><h2>Tokens of the API</h2><${Problem} error=${error}/>
    ${data && html`<${Table} rows=${rows(data, "tokens")} columns=${[
      ["name", (token) => shown(token.name), "name"],
      ["role", (token) => token.role],
      ["made", (token) => token.created],
      ["expires", (token) => token.expires_at ? token.expires_at.slice(0, 10) : "never"],
      ["action", (token) => html`<${Action} label="delete" question=${`Delete the token ${shown(token.name)}? It counts at once.`}
        run=${() => call("DELETE", `/v1/${path("tokens", token.name)}`)} done=${reload}/>`],
    ]}/>`}
    <form class="bar" onSubmit=${create}>
      <label>role <select name="role">${["read", "write", "admin"].map((role) => html`<option value=${role}>${role}</option>`)}</select></label>
      <label>name <input name="name" autocomplete="off"/></label>
      <label>expires in days (0: never) <input name="days" type="number" min="0" max="36500" defaultValue="90"/></label>
      <button class="main">make a token</button></form>${made}</section>`;
}

// What the rules say about a client and a topic.
function Tester() {
  const [asked, setAsked] = useState(null);
  const {data, error} = useData(asked && `/v1/topics/explain${query(asked)}`, 30);
  const ask = (event) => { event.preventDefault(); setAsked(Object.fromEntries(new FormData(event.target))); };
  return html`<section><h2>May a client publish, or read?</h2><form class="bar" onSubmit=${ask}>
    <label>client id <input name="client_id" required/></label>
    <label>user name, of a client that is not connected here <input name="username"/></label>
    <label>topic <input name="topic_name" required size="32"/></label><button class="main">ask the rules</button></form>
    <${Problem} error=${error}/>
    ${data && html`<dl><dt>publish</dt><dd><${Verdict} access=${data.publish}/></dd><dt>read</dt><dd><${Verdict} access=${data.read}/></dd></dl>`}</section>`;
}

function NewAccount({done}) {
  const [error, setError] = useState(null);
  const save = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    try {
      await call("POST", `/v1/${path("accounts", form.get("username"))}`, {password: form.get("password")});
      event.target.reset();
      setError(null);
      done();
    } catch (found) { setError(found); }
  };
  return html`<form class="bar" onSubmit=${save}>
    <label>user <input name="username" required autocomplete="off"/></label>
    <label>password <input name="password" type="password" required autocomplete="new-password"/></label>
    <button class="main">make, or change the password</button></form><${Problem} error=${error}/>`;
}
