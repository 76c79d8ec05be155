// The page: it shows forms, keeps their fields in the address bar, and asks the worker, which has all numbers.
const forms = new Map([...document.forms].map((form) => [form.id, form]));
const [state, output] = ["state", "answer"].map((id) => document.getElementById(id));
let worker, asked = 0; // the number of the last question: answers to earlier ones are outdated, and never shown

function begin() {
  worker = new Worker("worker.js", { type: "module" });
  worker.onerror = (event) => fail(event.message);
  worker.onmessage = ({ data }) => {
    if (data.fault) fail(data.fault);
    else if (data.form) fill(data.form);
    else if (data.id === asked) show(data.answer);
  };
}

function fail(message) {
  state.textContent = `Python did not start (${message}). Answers without a browser: pip install repro; repro --help`;
}

// Fill the lists, then answer the address, or the example that the page opens with.
function fill({ models, gpus, prices, quoted, wrong }) {
  const option = (value, label) => Object.assign(document.createElement("option"), { value, label });
  document.getElementById("models").append(...models.map(({ id, name }) => option(id, name)));
  document.getElementById("gpus").append(...gpus.map((name) => option(name, name)));
  document.getElementById("wrong").textContent = wrong;
  document.getElementById("quoted").textContent = quoted;
  for (const { gpu, buy } of prices) {
    const row = document.getElementById("prices").insertRow();
    row.append(Object.assign(document.createElement("th"), { textContent: gpu, scope: "row" }));
    for (const [kind, placeholder] of [["buy", buy], ["rent", ""]]) {
      const input = Object.assign(document.createElement("input"), { name: `${kind} ${gpu}`, placeholder, inputMode: "decimal" });
      input.setAttribute("aria-label", `${kind} ${gpu}, USD`);
      row.insertCell().append(input);
    }
  }
  const trainings = new Map(models.map(({ id, training }) => [id, training]));
  for (const { elements } of forms.values()) {
    if (!elements.model) continue;
    const hint = () => (elements.training.placeholder = trainings.get(elements.model.value) || "as in the paper");
    elements.model.addEventListener("input", hint);
    hint();
  }
  restore();
}

// Put the fields of the address into their form; only names of the form's own fields are taken.
function restore() {
  const [name, fields] = location.hash.slice(1).split("?");
  const form = forms.get(name) ?? forms.get("how");
  const given = new URLSearchParams(fields ?? "");
  if (fields !== undefined) for (const element of form.elements) {
    if (element.name) element.value = given.get(element.name) ?? "";
    if (element.name && element.selectedIndex === -1) element.selectedIndex = 0;
    if (element.name === "model") element.dispatchEvent(new Event("input")); // its hint; nothing asks yet
  }
  ask(form);
}

function ask(form) {
  for (const each of forms.values()) each.hidden = each !== form;
  for (const link of document.querySelectorAll("nav a")) link.toggleAttribute("aria-current", link.hash === `#${form.id}`);
  const fields = Object.fromEntries([...new FormData(form)].filter(([, text]) => text));
  history.replaceState(null, "", `#${form.id}?${new URLSearchParams(fields)}`);
  state.textContent = "Computing …";
  output.setAttribute("aria-busy", "true");
  document.body.dataset.ready = "";
  worker.postMessage({ id: ++asked, question: form.id, fields });
}

function show({ html, command, error, field, data }) {
  const form = [...forms.values()].find((each) => !each.hidden);
  for (const element of form.elements) {
    const wrong = Boolean(error) && element.name === field;
    element.toggleAttribute("aria-invalid", wrong);
    if (wrong) element.setAttribute("aria-errormessage", "state");
  }
  state.textContent = error ?? "";
  state.classList.toggle("error", Boolean(error));
  output.removeAttribute("aria-busy");
  output.innerHTML = html ?? ""; // made and escaped by repro.web
  document.getElementById("command").textContent = command ?? "";
  window.answered = { command, data, error, field };
  document.body.dataset.ready = "yes";
}

let waiting; // a moment after the last key, so that a word is not asked for letter by letter
for (const form of forms.values()) {
  form.addEventListener("submit", (event) => (event.preventDefault(), ask(form)));
  form.addEventListener("input", () => (clearTimeout(waiting), (waiting = setTimeout(ask, 250, form))));
}
output.addEventListener("click", ({ target }) => {
  const cell = target.dataset.cell;
  if (!cell) return;
  forms.get("paper").elements.cell.value = cell;
  ask(forms.get("paper"));
});
window.addEventListener("hashchange", restore);

if (typeof WebAssembly === "object") begin();
else fail("this browser has no WebAssembly");
