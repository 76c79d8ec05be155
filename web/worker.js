// Python and the package, off the page's thread, which never waits. The first message is {form}, or {fault}; then each
// {id, question, fields} gets {id, answer}.
import { loadPyodide } from "./pyodide/pyodide.mjs";
import { wheels } from "./wheels.js"; // build.sh writes it

async function start() {
  const python = await loadPyodide({ packages: wheels, env: { HOME: "/home/pyodide", REPRO_COMMAND: "repro" } });
  const web = python.pyimport("repro.web");
  postMessage({ form: JSON.parse(web.form()) });
  return web;
}

const ready = start();
ready.catch((error) => postMessage({ fault: String(error) }));

onmessage = async ({ data: { id, question, fields } }) => {
  try {
    postMessage({ id, answer: JSON.parse((await ready).answer(question, JSON.stringify(fields))) });
  } catch (error) {
    postMessage({ id, answer: { error: String(error), field: "" } });
  }
};
