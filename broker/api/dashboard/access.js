// Access: accounts of clients, and the role of this browser.
import {html, useState} from "/vendor/preact-htm.js";
import {Verdict} from "/topics.js";
import {Action, PAGE_ROWS, Pages, Problem, Table, call, go, path, query, rows, shown, useData} from "/lib.js";

export function Access({fields, may, who, has}) {
  const page = Number(fields.page) || 1;
  const {data, error, reload} = useData(has("auth") && `/v1/accounts${query({page_size: PAGE_ROWS, page})}`, 10);
  return html`
    <section><h2>This browser</h2><p>${who.needed ? `logged in with the token ${shown(who.name)}, role ${who.role}` :
      "no login is needed at this address: whoever reaches it may do everything"}</p></section>
    <${Tester}/>
    <section><h2>Accounts of clients</h2>
      ${has("auth") ? html`<${Problem} error=${error}/>` : html`<p class="soft">The plugin auth does not run: every client is let in.</p>`}
      ${data && html`<${Table} rows=${rows(data, "accounts")} columns=${[
        ["user", (account) => shown(account.username), "name"],
        ["role", (account) => shown(account.role)],
        ...(may.admin ? [["action", (account) => html`<${Action} label="delete" question=${`Delete the account ${shown(account.username)}?`}
          run=${() => call("DELETE", `/v1/${path("accounts", account.username)}`)} done=${reload}/>`]] : []),
      ]}/><${Pages} page=${page} total=${data.total_count ?? 0} go=${(next) => go("access", [], {page: next})}/>`}
      ${data && may.admin && html`<${NewAccount} done=${reload}/>`}
    </section>`;
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
